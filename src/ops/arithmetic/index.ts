import { sameShape } from "../../tensor/shape.ts";
import { apply, type Op, type OpEntry, type Tensor } from "../op.ts";
import { sumTo } from "../reduce/sum-to.ts";
import { scaled } from "../scale/index.ts";
import { arithmeticBench, arithmeticCases } from "./cases.ts";
import { arithmetic } from "./family.ts";

const sums = /* @__PURE__ */ arithmetic("add", (a, b) => a + b);
const differences = /* @__PURE__ */ arithmetic("subtract", (a, b) => a - b);
const products = /* @__PURE__ */ arithmetic("multiply", (a, b) => a * b);
const quotients = /* @__PURE__ */ arithmetic("divide", (a, b) => a / b);

type Operands = { a: Tensor; b: Tensor };
type Binary = Op<Operands, undefined, { y: Tensor }>;

const addOp: Binary = {
  name: "add",
  forward: ({ a, b }) => ({ outputs: { y: sums.compute(a, b) }, saved: undefined }),
  backward: ({ inputs: { a, b }, grads: { y }, needs }) =>
    y === undefined
      ? {}
      : { a: needs.a ? sumTo(y, a.shape) : undefined, b: needs.b ? sumTo(y, b.shape) : undefined },
};

const subtractOp: Binary = {
  name: "subtract",
  forward: ({ a, b }) => ({ outputs: { y: differences.compute(a, b) }, saved: undefined }),
  backward: ({ inputs: { a, b }, grads: { y }, needs }) =>
    y === undefined
      ? {}
      : {
          a: needs.a ? sumTo(y, a.shape) : undefined,
          b: needs.b ? scaled(sumTo(y, b.shape), -1) : undefined,
        },
};

/** The gradient of an operand of `shape` under y = operand·other. */
function productGradient(grad: Tensor, other: Tensor, operand: Tensor): Tensor {
  if (sameShape(operand.shape, grad.shape)) return products.compute(grad, other);
  // A dense factor is multiplied while it is summed; one that was stretched itself is multiplied first.
  if (sameShape(other.shape, grad.shape)) return sumTo(grad, operand.shape, other);
  return sumTo(products.compute(grad, other), operand.shape);
}

const multiplyOp: Binary = {
  name: "multiply",
  forward: ({ a, b }) => ({ outputs: { y: products.compute(a, b) }, saved: undefined }),
  backward: ({ inputs: { a, b }, grads: { y }, needs }) =>
    y === undefined
      ? {}
      : {
          a: needs.a ? productGradient(y, b, a) : undefined,
          b: needs.b ? productGradient(y, a, b) : undefined,
        },
};

const divideOp: Binary = {
  name: "divide",
  forward: ({ a, b }) => ({ outputs: { y: quotients.compute(a, b) }, saved: undefined }),
  backward: ({ inputs: { a, b }, outputs, grads: { y }, needs }) => {
    if (y === undefined) return {};
    const byA = quotients.compute(y, b);
    return {
      a: needs.a ? sumTo(byA, a.shape) : undefined,
      b: needs.b ? scaled(productGradient(byA, outputs.y, b), -1) : undefined,
    };
  },
};

/**
 * a + b, element by element; shapes broadcast from the last axis on, where 1 or a missing axis stretches.
 *
 * `a`, `b` floats of one dtype and any layout → the common shape. Each gradient is summed over the axes along which
 * its operand was stretched. Cost: the bytes of both read and of the result written.
 *
 * @throws ShapeError when the shapes do not broadcast, DtypeError when the dtypes differ or are whole numbers.
 * @example
 * const biased = add(x, bias); // [B, T, D] + [D]
 */
export function add(a: Tensor, b: Tensor): Tensor {
  return apply(addOp, { a, b }, undefined).y;
}

/**
 * a − b, element by element; shapes broadcast as in `add`.
 *
 * @throws ShapeError when the shapes do not broadcast, DtypeError when the dtypes differ or are whole numbers.
 * @example
 * const error = subtract(prediction, target);
 */
export function subtract(a: Tensor, b: Tensor): Tensor {
  return apply(subtractOp, { a, b }, undefined).y;
}

/**
 * a·b, element by element; shapes broadcast as in `add`. Its gradients multiply and sum in one pass where an operand
 * was stretched.
 *
 * @throws ShapeError when the shapes do not broadcast, DtypeError when the dtypes differ or are whole numbers.
 * @example
 * const gated = multiply(x, gate); // [B, T, H, V] · [B, T, H, 1]
 */
export function multiply(a: Tensor, b: Tensor): Tensor {
  return apply(multiplyOp, { a, b }, undefined).y;
}

/**
 * a / b, element by element; shapes broadcast as in `add`. Division by zero gives Infinity or NaN.
 *
 * @throws ShapeError when the shapes do not broadcast, DtypeError when the dtypes differ or are whole numbers.
 * @example
 * const shares = divide(weights, sum(weights, { axes: -1, keepDims: true }));
 */
export function divide(a: Tensor, b: Tensor): Tensor {
  return apply(divideOp, { a, b }, undefined).y;
}

function entry(
  name: string,
  call: (a: Tensor, b: Tensor) => Tensor,
  kernels: OpEntry["kernels"],
): OpEntry<undefined> {
  return {
    kind: "op",
    name,
    kernels,
    run: ({ a, b }) => ({ y: call(a!, b!) }),
    cases: arithmeticCases(name),
    bench: arithmeticBench(name),
  };
}

/** How suites see `add`. */
export const addEntry = /* @__PURE__ */ entry("add", add, sums.kernels);
/** How suites see `subtract`. */
export const subtractEntry = /* @__PURE__ */ entry("subtract", subtract, differences.kernels);
/** How suites see `multiply`. */
export const multiplyEntry = /* @__PURE__ */ entry("multiply", multiply, products.kernels);
/** How suites see `divide`. */
export const divideEntry = /* @__PURE__ */ entry("divide", divide, quotients.kernels);
