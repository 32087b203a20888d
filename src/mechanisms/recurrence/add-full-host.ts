/** The additive form that is not causal as plain loops: every query reads the state behind all keys. */
import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { mapValues } from "../feature-maps/pointwise.ts";
import { slopes } from "./add-backward-host.ts";
import { addFlags, carried, mapOf } from "./add-host.ts";
import { sequenceRanges } from "./problem.ts";

/** One value head of one sequence: its operands as rows, and its state behind all keys. */
interface Head {
  readonly unit: number;
  readonly queries: readonly (readonly [q: TypedArray, o: TypedArray, row: number])[];
  readonly keys: readonly (readonly [k: TypedArray, v: TypedArray, row: number])[];
  readonly S: Float64Array;
  readonly z: Float64Array;
}

/** Both kernels begin with q, k, v, initialState, initialNormalizer, cuQueries, cuKeys, o or dO. */
function* eachHead(buffers: readonly TypedArray[], ints: readonly number[]): Generator<Head> {
  const [rawQ, rawK, v, initialState, initialNormalizer, cuQueries, cuKeys, o] = buffers;
  const [flags, sequences, queryTime, keyTime, heads, valueHeads, K, V, qStride, kStride, vStride, oStride] =
    ints;
  const [q, k] = [rawQ, rawK].map((x) => mapValues(mapOf(flags), x));
  const packed = (flags & addFlags.packed) !== 0;
  const queryRanges = sequenceRanges(sequences, queryTime, packed ? cuQueries : undefined, sequences);
  const keyRanges = sequenceRanges(sequences, keyTime, packed ? cuKeys : undefined, sequences);
  for (let unit = 0; unit < sequences * valueHeads; unit++) {
    const [n, j] = [Math.floor(unit / valueHeads), unit % valueHeads];
    const key = Math.floor(j / (valueHeads / heads)) * K;
    const rows = (
      range: readonly [number, number],
      a: TypedArray,
      aStride: number,
      b: TypedArray,
      bStride: number,
    ) =>
      Array.from({ length: range[1] - range[0] }, (_, i) => {
        const row = range[0] + i;
        const left = a.subarray(row * aStride + key, row * aStride + key + K);
        return [left, b.subarray(row * bStride + j * V, row * bStride + (j + 1) * V), row] as const;
      });
    const queries = rows(queryRanges[n], q, qStride, o, oStride);
    const keys = rows(keyRanges[n], k, kStride, v, vStride);
    const S = carried(flags & addFlags.initialState, initialState, unit * K * V, K * V);
    const z = carried(flags & addFlags.initialNormalizer, initialNormalizer, unit * K, K);
    for (const [left, right] of keys) {
      for (let c = 0; c < K; c++) {
        z[c] += left[c];
        for (let i = 0; i < V; i++) S[c * V + i] += left[c] * right[i];
      }
    }
    yield { unit, queries, keys, S, z };
  }
}

/** scale Sᵀq and, with the normaliser, scale z·q + eps (else 1), for one query. */
function read(
  { S, z }: Head,
  q: TypedArray,
  V: number,
  normalize: boolean,
  scale: number,
  eps: number,
): { n: Float64Array; d: number } {
  const n = new Float64Array(V);
  let d = eps;
  for (let c = 0; c < q.length; c++) {
    d += scale * q[c] * z[c];
    for (let i = 0; i < V; i++) n[i] += scale * q[c] * S[c * V + i];
  }
  return { n, d: normalize ? d : 1 };
}

/** o = scale Sᵀq or scale Sᵀq / (scale z·q + eps) with S = S0 + Σ k vᵀ and z = z0 + Σ k over all keys. */
export const addFullForwardHost: HostKernel = (buffers, ints, floats) => {
  const [finalState, finalNormalizer] = buffers.slice(8);
  const [flags, , , , , , K, V] = ints;
  for (const head of eachHead(buffers, ints)) {
    for (const [q, o] of head.queries) {
      const { n, d } = read(head, q, V, (flags & addFlags.normalize) !== 0, floats[0], floats[1]);
      for (let i = 0; i < V; i++) o[i] = d === 0 ? 0 : n[i] / d;
    }
    if (flags & addFlags.finalState) finalState.set(head.S, head.unit * K * V);
    if (flags & addFlags.finalNormalizer) finalNormalizer.set(head.z, head.unit * K);
  }
};

/** dq of every query, and what they give to dS and dz. */
function queryGradients(
  head: Head,
  dq: (row: number) => TypedArray,
  V: number,
  normalize: boolean,
  [scale, eps]: readonly number[],
  R: Float64Array,
  dz: Float64Array,
): void {
  for (const [q, dO, row] of head.queries) {
    const { n, d } = read(head, q, V, normalize, scale, eps);
    const inverse = d === 0 ? 0 : 1 / d;
    const dd = normalize ? n.reduce((sum, x, i) => sum - scale * dO[i] * x * inverse * inverse, 0) : 0;
    const to = dq(row);
    for (let c = 0; c < q.length; c++) {
      to[c] += dd * head.z[c];
      dz[c] += dd * q[c];
      for (let i = 0; i < V; i++) {
        const dn = scale * dO[i] * inverse;
        to[c] += head.S[c * V + i] * dn;
        R[c * V + i] += q[c] * dn;
      }
    }
  }
}

/** The backward of that form. Sums over a group are complete in dq and dk; the parts beyond the first are zeros. */
export const addFullBackwardHost: HostKernel = (buffers, ints, floats) => {
  const [dFinalState, dFinalNormalizer, dq, dk, dv, dInitialState, dInitialNormalizer] = buffers.slice(8);
  const [flags, sequences, queryTime, keyTime, heads, valueHeads, K, V] = ints;
  const [qStride, kStride, , , dqStride, dkStride, dvStride, parts] = ints.slice(8);
  const rows = flags & addFlags.packed ? 1 : sequences;
  for (const [array, time, stride, width] of [
    [dq, queryTime, dqStride, heads * K],
    [dk, keyTime, dkStride, heads * K],
    [dv, keyTime, dvStride, valueHeads * V],
  ] as const) {
    for (let row = 0; row < rows * time; row++) array.fill(0, row * stride, row * stride + width);
  }
  if (parts > 1) {
    buffers[15].fill(0, 0, (parts - 1) * rows * queryTime * heads * K);
    buffers[16].fill(0, 0, (parts - 1) * rows * keyTime * heads * K);
  }
  for (const head of eachHead(buffers, ints)) {
    const { unit } = head;
    const j = unit % valueHeads;
    const key = Math.floor(j / (valueHeads / heads)) * K;
    const R = carried(flags & addFlags.finalState, dFinalState, unit * K * V, K * V);
    const dz = carried(flags & addFlags.finalNormalizer, dFinalNormalizer, unit * K, K);
    const query = (row: number) => dq.subarray(row * dqStride + key, row * dqStride + key + K);
    queryGradients(head, query, V, (flags & addFlags.normalize) !== 0, floats, R, dz);
    for (const [k, v, row] of head.keys) {
      for (let c = 0; c < K; c++) {
        dk[row * dkStride + key + c] += dz[c];
        for (let i = 0; i < V; i++) {
          dk[row * dkStride + key + c] += R[c * V + i] * v[i];
          dv[row * dvStride + j * V + i] += R[c * V + i] * k[c];
        }
      }
    }
    if (flags & addFlags.initialStateGradient) dInitialState.set(R, unit * K * V);
    if (flags & addFlags.initialNormalizerGradient) dInitialNormalizer.set(dz, unit * K);
  }
  const map = mapOf(flags);
  const [q, k] = buffers.slice(0, 2).map((x) => mapValues(map, x));
  slopes(map, dq, dqStride, q, qStride, [[0, rows * queryTime]], heads * K);
  slopes(map, dk, dkStride, k, kStride, [[0, rows * keyTime]], heads * K);
};
