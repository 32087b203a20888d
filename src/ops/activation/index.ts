import type { Tensor } from "../op.ts";
import { activation } from "./family.ts";

const reluRow = /* @__PURE__ */ activation("relu");
const geluRow = /* @__PURE__ */ activation("gelu");
const geluTanhRow = /* @__PURE__ */ activation("geluTanh");
const siluRow = /* @__PURE__ */ activation("silu");
const sigmoidRow = /* @__PURE__ */ activation("sigmoid");
const softplusRow = /* @__PURE__ */ activation("softplus");
const tanhRow = /* @__PURE__ */ activation("tanh");
const expRow = /* @__PURE__ */ activation("exp");
const logRow = /* @__PURE__ */ activation("log");
const sqrtRow = /* @__PURE__ */ activation("sqrt");
const squareRow = /* @__PURE__ */ activation("square");
const logSigmoidRow = /* @__PURE__ */ activation("logSigmoid");
const eluPlusOneRow = /* @__PURE__ */ activation("eluPlusOne");
const sinRow = /* @__PURE__ */ activation("sin");
const cosRow = /* @__PURE__ */ activation("cos");

/**
 * max(x, 0), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. NaN stays NaN; the slope at 0 is 0.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = relu(x);
 */
export function relu(x: Tensor): Tensor {
  return reluRow.call(x);
}

/**
 * x·Φ(x), Φ the distribution function of the standard normal (Hendrycks & Gimpel, arXiv 1606.08415v5, eq. 1), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. Exact, not the tanh form: that is `geluTanh`.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = gelu(x);
 */
export function gelu(x: Tensor): Tensor {
  return geluRow.call(x);
}

/**
 * x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))) (Hendrycks & Gimpel, arXiv 1606.08415v5, eq. 2), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. Often written `gelu_new` or `gelu_pytorch_tanh`.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = geluTanh(x);
 */
export function geluTanh(x: Tensor): Tensor {
  return geluTanhRow.call(x);
}

/**
 * x·σ(x), also called swish (Ramachandran et al., arXiv 1710.05941v2), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. 0 to 2e-36 at −Infinity.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = silu(x);
 */
export function silu(x: Tensor): Tensor {
  return siluRow.call(x);
}

/**
 * 1 / (1 + exp(−x)), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. Between 0 and 1, and never exactly 0 in float32.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = sigmoid(x);
 */
export function sigmoid(x: Tensor): Tensor {
  return sigmoidRow.call(x);
}

/**
 * log(1 + exp(x)), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. Above 20 it is x itself to the last float32 bit, and on the host device by definition.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = softplus(x);
 */
export function softplus(x: Tensor): Tensor {
  return softplusRow.call(x);
}

/**
 * (exp(2x) − 1) / (exp(2x) + 1), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. Relatively accurate near 0.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = tanh(x);
 */
export function tanh(x: Tensor): Tensor {
  return tanhRow.call(x);
}

/**
 * exp(x), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. Infinity above 88.72, 0 below −87.33 in float32: subnormal results are not made.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = exp(x);
 */
export function exp(x: Tensor): Tensor {
  return expRow.call(x);
}

/**
 * The natural logarithm, element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. −Infinity at 0, NaN below.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = log(x);
 */
export function log(x: Tensor): Tensor {
  return logRow.call(x);
}

/**
 * √x, element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. NaN below 0; the slope at 0 is Infinity.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = sqrt(x);
 */
export function sqrt(x: Tensor): Tensor {
  return sqrtRow.call(x);
}

/**
 * x², element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = square(x);
 */
export function square(x: Tensor): Tensor {
  return squareRow.call(x);
}

/**
 * log(1 / (1 + exp(−x))) = min(x, 0) − log1p(exp(−|x|)), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. Accurate on both sides.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = logSigmoid(x);
 */
export function logSigmoid(x: Tensor): Tensor {
  return logSigmoidRow.call(x);
}

/**
 * elu(x) + 1: x + 1 above 0, exp(x) below (the feature map of Katharopoulos et al., arXiv 2006.16236v3, eq. 7), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. Positive everywhere above −87; never computed as (exp(x) − 1) + 1, which loses small values.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = eluPlusOne(x);
 */
export function eluPlusOne(x: Tensor): Tensor {
  return eluPlusOneRow.call(x);
}

/**
 * sin(x), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. In float32 within 2e-7 for |x| up to 8,192; larger
 * arguments lose what they lose of their fraction. NaN at the infinities.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = sin(x);
 */
export function sin(x: Tensor): Tensor {
  return sinRow.call(x);
}

/**
 * cos(x), element by element.
 *
 * `x [...]` floats of any layout → the same shape and dtype. As accurate as `sin`.
 *
 * @throws DtypeError when x holds whole numbers.
 * @example
 * const y = cos(x);
 */
export function cos(x: Tensor): Tensor {
  return cosRow.call(x);
}

/** How suites see `relu`. */
export const reluEntry = reluRow.entry;
/** How suites see `gelu`. */
export const geluEntry = geluRow.entry;
/** How suites see `geluTanh`. */
export const geluTanhEntry = geluTanhRow.entry;
/** How suites see `silu`. */
export const siluEntry = siluRow.entry;
/** How suites see `sigmoid`. */
export const sigmoidEntry = sigmoidRow.entry;
/** How suites see `softplus`. */
export const softplusEntry = softplusRow.entry;
/** How suites see `tanh`. */
export const tanhEntry = tanhRow.entry;
/** How suites see `exp`. */
export const expEntry = expRow.entry;
/** How suites see `log`. */
export const logEntry = logRow.entry;
/** How suites see `sqrt`. */
export const sqrtEntry = sqrtRow.entry;
/** How suites see `square`. */
export const squareEntry = squareRow.entry;
/** How suites see `logSigmoid`. */
export const logSigmoidEntry = logSigmoidRow.entry;
/** How suites see `eluPlusOne`. */
export const eluPlusOneEntry = eluPlusOneRow.entry;
/** How suites see `sin`. */
export const sinEntry = sinRow.entry;
/** How suites see `cos`. */
export const cosEntry = cosRow.entry;
