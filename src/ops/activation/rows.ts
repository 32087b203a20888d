/**
 * The functions of one number that act on each element: what they are and how steep, on one page.
 * `slope` is the derivative given x and y = value(x); `keeps` says which of the two it needs.
 */
import { normalCdf } from "../../tensor/normal-distribution.ts";

/** One function of the family. */
export interface ActivationRow {
  readonly value: (x: number) => number;
  readonly slope: (x: number, y: number) => number;
  readonly keeps: "x" | "y";
  /** exp, log and the like in one value, and in one slope. */
  readonly transcendentals: readonly [value: number, slope: number];
}

/** Names of the family, in kernels as in errors. */
export type ActivationName =
  | "relu"
  | "gelu"
  | "geluTanh"
  | "silu"
  | "sigmoid"
  | "softplus"
  | "tanh"
  | "exp"
  | "log"
  | "sqrt"
  | "square"
  | "logSigmoid"
  | "eluPlusOne"
  | "sin"
  | "cos";

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
const logSigmoid = (x: number): number => Math.min(x, 0) - Math.log1p(Math.exp(-Math.abs(x)));
/** The infinities of x times a zero are left out: the limits there are 0 or x itself. */
const times = (x: number, factor: number): number => (factor === 0 ? 0 : x * factor);
const tanhScale = Math.sqrt(2 / Math.PI);
const tanhArgument = (x: number): number => 2 * tanhScale * (x + 0.044715 * x * x * x);

/** The family, by name. */
export const activationRows: Readonly<Record<ActivationName, ActivationRow>> = {
  relu: {
    value: (x) => Math.max(x, 0),
    slope: (_, y) => (y > 0 ? 1 : 0),
    keeps: "y",
    transcendentals: [0, 0],
  },
  gelu: {
    value: (x) => times(x, normalCdf(x)),
    slope: (x) => normalCdf(x) + times(x, Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI)),
    keeps: "x",
    transcendentals: [1, 2],
  },
  geluTanh: {
    value: (x) => times(x, sigmoid(tanhArgument(x))),
    slope: (x) => {
      const s = sigmoid(tanhArgument(x));
      return s + times(x * 2 * tanhScale * (1 + 3 * 0.044715 * x * x), s * (1 - s));
    },
    keeps: "x",
    transcendentals: [1, 1],
  },
  silu: {
    value: (x) => times(x, sigmoid(x)),
    slope: (x) => sigmoid(x) + times(x, sigmoid(x) * sigmoid(-x)),
    keeps: "x",
    transcendentals: [1, 1],
  },
  sigmoid: { value: sigmoid, slope: (_, y) => y * (1 - y), keeps: "y", transcendentals: [1, 0] },
  softplus: { value: softplus, slope: sigmoid, keeps: "x", transcendentals: [2, 1] },
  tanh: { value: Math.tanh, slope: (_, y) => 1 - y * y, keeps: "y", transcendentals: [1, 0] },
  exp: { value: Math.exp, slope: (_, y) => y, keeps: "y", transcendentals: [1, 0] },
  log: { value: Math.log, slope: (x) => 1 / x, keeps: "x", transcendentals: [1, 0] },
  sqrt: { value: Math.sqrt, slope: (_, y) => 0.5 / y, keeps: "y", transcendentals: [0, 0] },
  square: { value: (x) => x * x, slope: (x) => 2 * x, keeps: "x", transcendentals: [0, 0] },
  logSigmoid: { value: logSigmoid, slope: (x) => sigmoid(-x), keeps: "x", transcendentals: [2, 1] },
  eluPlusOne: {
    value: (x) => (x > 0 ? x + 1 : Math.exp(x)),
    slope: (_, y) => Math.min(y, 1),
    keeps: "y",
    transcendentals: [1, 0],
  },
  sin: { value: Math.sin, slope: (x) => Math.cos(x), keeps: "x", transcendentals: [1, 1] },
  cos: { value: Math.cos, slope: (x) => -Math.sin(x), keeps: "x", transcendentals: [1, 1] },
};
