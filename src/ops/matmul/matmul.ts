import { empty, full } from "../../autograd/tensor.ts";
import { checkTensor, DtypeError } from "../../errors.ts";
import { solveAxes } from "../../tensor/axes.ts";
import type { DType } from "../../tensor/dtype.ts";
import { broadcastShapes } from "../../tensor/shape.ts";
import { apply, type Op, type Tensor } from "../op.ts";
import { matricesOf, type Product, product, withUnitStride } from "./product.ts";

/** How `matmul` reads its operands. */
export interface MatmulOptions {
  /** a is `[…, K, M]`. */
  readonly transposeA?: boolean;
  /** b is `[…, N, K]`, as weights `[out, in]` are. */
  readonly transposeB?: boolean;
  /** `[N]`, added to every row. */
  readonly bias?: Tensor | undefined;
}

type Inputs = { a: Tensor; b: Tensor; bias?: Tensor | undefined };
type Transposed = { readonly a: boolean; readonly b: boolean };

/** The length of one of the last axes, counted from the end. */
const last = (x: Tensor, axis: 1 | 2): number => x.shape[x.rank - axis]!;

/** The sizes of a call. */
interface Sizes {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** The axes the matrices are stacked along. */
  readonly batch: readonly number[];
}

const noAxes: readonly number[] = [];

function sizesOf(a: Tensor, b: Tensor, transposed: Transposed): Sizes {
  const isPlain = a.rank === 2 && b.rank === 2;
  return {
    m: last(a, transposed.a ? 1 : 2),
    n: last(b, transposed.b ? 2 : 1),
    k: last(a, transposed.a ? 2 : 1),
    batch: isPlain ? noAxes : broadcastShapes("matmul", a.shape.slice(0, -2), b.shape.slice(0, -2)),
  };
}

function forward({ a, b, bias }: Inputs, transposed: Transposed): Tensor {
  const { m, n, k, batch } = sizesOf(a, b, transposed);
  const y = empty(a.device, [...batch, m, n], { dtype: a.dtype });
  product(y.device, {
    m,
    n,
    k,
    batch,
    a: matricesOf(withUnitStride(a), batch, transposed.a),
    b: matricesOf(withUnitStride(b), batch, transposed.b),
    c: matricesOf(y, batch, false),
    bias: bias?.layout,
  });
  return y;
}

/** A gradient of the shape of `like`: one product, summed over the axes along which `like` was repeated. */
function gradient(like: Tensor, job: Omit<Product, "c">): Tensor {
  const result = empty(like.device, like.shape, { dtype: like.dtype });
  product(result.device, { ...job, c: matricesOf(result, job.batch, false) });
  return result;
}

/** dA = dY·Bᵀ, or its transpose B·dYᵀ where a is stored transposed. */
function gradientOfA({ a, b }: Inputs, dy: Tensor, transposed: Transposed): Tensor {
  const { m, n, k, batch } = sizesOf(a, b, transposed);
  const matrix = (x: Tensor, turn: boolean) => matricesOf(withUnitStride(x), batch, turn);
  if (transposed.a) {
    return gradient(a, { m: k, n: m, k: n, batch, a: matrix(b, transposed.b), b: matrix(dy, true) });
  }
  return gradient(a, { m, n: k, k: n, batch, a: matrix(dy, false), b: matrix(b, !transposed.b) });
}

/** dB = Aᵀ·dY, or its transpose dYᵀ·A where b is stored transposed. */
function gradientOfB({ a, b }: Inputs, dy: Tensor, transposed: Transposed): Tensor {
  const { m, n, k, batch } = sizesOf(a, b, transposed);
  const matrix = (x: Tensor, turn: boolean) => matricesOf(withUnitStride(x), batch, turn);
  if (transposed.b) {
    return gradient(b, { m: n, n: k, k: m, batch, a: matrix(dy, true), b: matrix(a, transposed.a) });
  }
  return gradient(b, { m: k, n, k: m, batch, a: matrix(a, !transposed.a), b: matrix(dy, false) });
}

/** The sum of all rows of dY, as a product with a row of ones. */
function gradientOfBias(bias: Tensor, dy: Tensor): Tensor {
  const batch = dy.shape.slice(0, -2);
  const one = full(dy.device, [1], 1, { dtype: dy.dtype });
  const result = empty(bias.device, bias.shape, { dtype: bias.dtype });
  const repeated = batch.map(() => 0);
  product(dy.device, {
    ...{ m: 1, n: last(dy, 1), k: last(dy, 2), batch },
    a: { slice: one.layout, batch: repeated, row: 0, col: 0 },
    b: matricesOf(withUnitStride(dy), batch, false),
    c: { slice: result.layout, batch: repeated, row: 0, col: 1 },
  });
  return result;
}

const op: Op<Inputs, Transposed, { y: Tensor }> = {
  name: "matmul",
  forward: (inputs, transposed) => ({ outputs: { y: forward(inputs, transposed) }, saved: undefined }),
  backward: ({ inputs, options, grads: { y }, needs }) => {
    if (y === undefined) return {};
    return {
      a: needs.a ? gradientOfA(inputs, y, options) : undefined,
      b: needs.b ? gradientOfB(inputs, y, options) : undefined,
      bias: needs.bias ? gradientOfBias(inputs.bias!, y) : undefined,
    };
  },
};

function checkDtype(name: string, dtype: DType, expected: DType): void {
  if (dtype === expected && (dtype === "float32" || dtype === "float64")) return;
  throw new DtypeError(
    `[matmul] operands are of one float dtype: expected float32 or float64, got a ${expected} and ${name} ${dtype}`,
  );
}

/**
 * Matrix product Y = A·B (+ bias), stacks of matrices broadcasting over their leading axes.
 *
 * `a […, M, K]`, `b […, K, N]`, `bias [N]` → `[…, M, N]`; any strides, so that a transposed view or a part of a wider
 * tensor costs no copy. Every element is one ascending multiply-add chain over K that starts from the bias: a row's
 * bits depend on nothing but that row, b and the bias. Cost: M·N·K multiply-adds.
 *
 * @throws ShapeError naming the axis on which a, b and bias disagree; DtypeError for integers or mixed dtypes.
 * @example
 * const y = matmul(x, weight, { transposeB: true, bias }); // [B, T, in] by [out, in] → [B, T, out]
 */
export function matmul(a: Tensor, b: Tensor, options: MatmulOptions = {}): Tensor {
  checkTensor("matmul", "a", a);
  checkTensor("matmul", "b", b);
  const { transposeA = false, transposeB = false, bias } = options;
  solveAxes("matmul", {
    a: { shape: a.shape, axes: transposeA ? "…? K M" : "…? M K" },
    b: { shape: b.shape, axes: transposeB ? "…? N K" : "…? K N" },
    bias: bias && { shape: bias.shape, axes: "N" },
  });
  checkDtype("a", a.dtype, a.dtype);
  checkDtype("b", b.dtype, a.dtype);
  if (bias !== undefined) checkDtype("bias", bias.dtype, a.dtype);
  return apply(op, { a, b, bias }, { a: transposeA, b: transposeB }).y;
}
