/** Inputs and state parts that many mechanisms share, as their contracts declare them. */
import type { InputRule, Shape, StatePart } from "./mechanism.ts";

const same = (normal: number): number => normal;
const decays = (value: number): boolean => value <= 0;
const logSigmoid = (x: number): number => Math.min(x, 0) - Math.log1p(Math.exp(-Math.abs(x)));

/** `q [B,T,H,K]`. */
export const query: InputRule = { axes: "B T H K", domain: "any", sample: same };
/** `k [B,T,H,K]`. */
export const key: InputRule = { axes: "B T H K", domain: "any", sample: same };
/** `k [B,T,H,K]` of unit length, as the delta rule wants it. */
export const unitKey: InputRule = {
  axes: "B T H K",
  domain: "unit length keeps the update stable",
  sample: same,
};
/** `v [B,T,HV,V]`. */
export const value: InputRule = { axes: "B T HV V", domain: "any", sample: same };
/** `q [B,T,HQ,K]`, query head j with key head floor(j / (HQ/HKV)). */
export const groupedQuery: InputRule = { axes: "B T HQ K", domain: "any", sample: same };
/** `k [B,T,HKV,K]`. */
export const groupedKey: InputRule = { axes: "B T HKV K", domain: "any", sample: same };
/** `v [B,T,HKV,V]`. */
export const groupedValue: InputRule = { axes: "B T HKV V", domain: "any", sample: same };
/** `beta [B,T,HV]`, the write strength after its sigmoid. */
export const writeStrength: InputRule = {
  axes: "B T HV",
  domain: "write strength, 0 to 1 (to 2 where negative eigenvalues are allowed)",
  admits: (value) => value >= 0 && value <= 2,
  sample: (normal) => 1 / (1 + Math.exp(-normal)),
};
/** `g [HV]`, a decay fixed per head. */
export const headGate: InputRule = {
  axes: "HV",
  domain: "log decay, <= 0",
  admits: decays,
  sample: (normal) => -0.05 * Math.abs(normal),
};
/** `g [B,T,HV]`, a decay per token. */
export const scalarGate: InputRule = {
  axes: "B T HV",
  domain: "log decay, <= 0",
  admits: decays,
  sample: logSigmoid,
};
/** `g [B,T,HV,K]`, a decay per key channel. */
export const keyGate: InputRule = {
  axes: "B T HV K",
  domain: "log decay, <= 0",
  admits: decays,
  sample: logSigmoid,
};
/** `initialState [B,HV,F,V]`, where keys are mapped to F features. */
export const initialFeatureState: InputRule = {
  axes: "B HV F V",
  domain: "any",
  optional: true,
  sample: same,
};
/** `initialState [B,HV,K,V]`. */
export const initialState: InputRule = { axes: "B HV K V", domain: "any", optional: true, sample: same };
/** `initialNormalizer [B,HV,K]`. */
export const initialNormalizer: InputRule = {
  axes: "B HV K",
  domain: "a sum of mapped keys, >= 0",
  optional: true,
  sample: (normal) => Math.abs(normal),
};

/** `initialNormalizer [B,HV,F]`, where keys are mapped to F features. */
export const initialFeatureNormalizer: InputRule = { ...initialNormalizer, axes: "B HV F" };

/** The matrix state S of mapped keys. */
export const featureState: StatePart = { axes: "B HV F V", input: "initialState", output: "finalState" };
/** The normaliser z of mapped keys. */
export const featureNormalizerState: StatePart = {
  axes: "B HV F",
  input: "initialNormalizer",
  output: "finalNormalizer",
};
/** The matrix state S. */
export const matrixState: StatePart = { axes: "B HV K V", input: "initialState", output: "finalState" };

/** The size that bars speak of. */
export const benchShapes: readonly Shape[] = [{ B: 1, T: 4096, H: 8, HV: 8, K: 64, V: 64 }];
