/** Gradients of the additive recurrence as plain loops that keep every state, written from its equations. */
import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { mapValues, type Pointwise } from "../feature-maps/pointwise.ts";
import { addFlags, carried, decayOf, mapOf } from "./add-host.ts";
import { decayCodes, sequenceRanges } from "./problem.ts";

/** One value head of one sequence: rows of its operands, and its carried gradients. */
interface Head {
  readonly keyWidth: number;
  readonly valueWidth: number;
  readonly normalize: boolean;
  readonly scale: number;
  readonly eps: number;
  readonly begin: number;
  readonly end: number;
  q(row: number): TypedArray;
  k(row: number): TypedArray;
  v(row: number): TypedArray;
  dO(row: number): TypedArray;
  decay(row: number, channel: number): number;
}

/** Where the gradients of one token are added. */
interface Targets {
  dq(row: number): TypedArray;
  dk(row: number): TypedArray;
  dv(row: number): TypedArray;
  dg(row: number, channel: number, gradient: number): void;
}

/** The state and the normaliser before every token and behind the last. */
function states(head: Head, S0: Float64Array, z0: Float64Array): { S: Float64Array; z: Float64Array }[] {
  const { keyWidth, valueWidth } = head;
  const kept = [{ S: S0, z: z0 }];
  for (let row = head.begin; row < head.end; row++) {
    const { S, z } = kept[kept.length - 1];
    const [k, v] = [head.k(row), head.v(row)];
    const next = { S: Float64Array.from(S), z: Float64Array.from(z) };
    for (let c = 0; c < keyWidth; c++) {
      const a = head.decay(row, c);
      next.z[c] = a * z[c] + k[c];
      for (let j = 0; j < valueWidth; j++)
        next.S[c * valueWidth + j] = a * S[c * valueWidth + j] + k[c] * v[j];
    }
    kept.push(next);
  }
  return kept;
}

/** Gradients of Sᵀq and of z·q at one token, given the gradient of its output. */
function readGradients(
  head: Head,
  q: TypedArray,
  dO: TypedArray,
  S: Float64Array,
  z: Float64Array,
): { dn: Float64Array; dd: number } {
  const { keyWidth, valueWidth, scale, eps } = head;
  if (!head.normalize) return { dn: Float64Array.from(dO, (x) => scale * x), dd: 0 };
  let d = eps;
  const n = new Float64Array(valueWidth);
  for (let c = 0; c < keyWidth; c++) {
    d += scale * q[c] * z[c];
    for (let j = 0; j < valueWidth; j++) n[j] += scale * q[c] * S[c * valueWidth + j];
  }
  const inverse = d === 0 ? 0 : 1 / d;
  const dd = n.reduce((sum, x, j) => sum - scale * dO[j] * x * inverse * inverse, 0);
  return { dn: Float64Array.from(dO, (x) => scale * x * inverse), dd };
}

/** One token backwards: R and dz come as they are behind it and leave as they are before it. */
function retreat(
  head: Head,
  to: Targets,
  row: number,
  before: { S: Float64Array; z: Float64Array },
  behind: { S: Float64Array; z: Float64Array },
  R: Float64Array,
  dz: Float64Array,
): void {
  const { keyWidth, valueWidth } = head;
  const [q, k, v] = [head.q(row), head.k(row), head.v(row)];
  const [dq, dk, dv] = [to.dq(row), to.dk(row), to.dv(row)];
  const { dn, dd } = readGradients(head, q, head.dO(row), behind.S, behind.z);
  for (let c = 0; c < keyWidth; c++) {
    const a = head.decay(row, c);
    dz[c] += dd * q[c];
    dq[c] += dd * behind.z[c];
    dk[c] += dz[c];
    let dg = dz[c] * a * before.z[c];
    for (let j = 0; j < valueWidth; j++) {
      const i = c * valueWidth + j;
      dq[c] += behind.S[i] * dn[j];
      R[i] += q[c] * dn[j];
      dk[c] += R[i] * v[j];
      dv[j] += R[i] * k[c];
      dg += R[i] * a * before.S[i];
      R[i] *= a;
    }
    dz[c] *= a;
    to.dg(row, c, dg);
  }
}

/** Where a gate's gradient is added: summed over time, over channels, or neither. */
function gateTarget(
  flags: number,
  dg: TypedArray,
  stride: number,
  head: number,
  keyWidth: number,
): Targets["dg"] {
  if (!(flags & addFlags.gateGradient)) return () => {};
  const at = (row: number, channel: number): number => {
    if ((flags & 3) === decayCodes.head) return head;
    return (flags & 3) === decayCodes.scalar ? row * stride + head : row * stride + head * keyWidth + channel;
  };
  return (row, channel, gradient) => {
    dg[at(row, channel)] += gradient;
  };
}

function zeroRows(
  array: TypedArray,
  rows: readonly (readonly [number, number])[],
  stride: number,
  width: number,
): void {
  for (const [begin, end] of rows) {
    for (let row = begin; row < end; row++) array.fill(0, row * stride, row * stride + width);
  }
}

/** Row views of an operand's part that belongs to one head. */
function rowsAt(array: TypedArray, stride: number, at: number, width: number): (row: number) => TypedArray {
  return (row) => array.subarray(row * stride + at, row * stride + at + width);
}

/** Zeros in every gradient that is summed, and in the parts, whose sums are already in the results here. */
function clearGradients(
  buffers: readonly TypedArray[],
  ints: readonly number[],
  ranges: readonly (readonly [number, number])[],
): void {
  const [dq, dk, dv, dg, , , dqParts, dkParts, dgParts] = buffers.slice(10);
  const [flags, sequences, time, heads, valueHeads, keyWidth, valueWidth] = ints;
  const [dqStride, dkStride, dvStride, dgStride, , parts] = ints.slice(12);
  const decay = flags & 3;
  zeroRows(dq, ranges, dqStride, heads * keyWidth);
  zeroRows(dk, ranges, dkStride, heads * keyWidth);
  zeroRows(dv, ranges, dvStride, valueHeads * valueWidth);
  const total = flags & addFlags.packed ? time : sequences * time;
  if (parts > 1) {
    for (const part of [dqParts, dkParts]) part.fill(0, 0, (parts - 1) * total * heads * keyWidth);
  }
  if (!(flags & addFlags.gateGradient)) return;
  if (decay !== decayCodes.head) {
    zeroRows(dg, ranges, dgStride, decay === decayCodes.key ? valueHeads * keyWidth : valueHeads);
    return;
  }
  dg.fill(0, 0, valueHeads);
  if (sequences > 1) dgParts.fill(0, 0, (sequences - 1) * valueHeads);
}

/** Gradients by what went into the map, from those by the mapped rows. */
export function slopes(
  map: Pointwise | undefined,
  gradient: TypedArray,
  stride: number,
  mapped: TypedArray,
  mappedStride: number,
  ranges: readonly (readonly [number, number])[],
  width: number,
): void {
  if (map === undefined) return;
  for (const [begin, end] of ranges) {
    for (let row = begin; row < end; row++) {
      for (let j = 0; j < width; j++) gradient[row * stride + j] *= map.slope(mapped[row * mappedStride + j]);
    }
  }
}

/** The causal backward. Sums over a group are complete in dq and dk; the parts beyond the first are zeros. */
export const addBackwardHost: HostKernel = (buffers, ints, floats) => {
  const [rawQ, rawK, v, g, initialState, initialNormalizer, cuSeqlens, dO, dFinalState, dFinalNormalizer] =
    buffers;
  const [dq, dk, dv, dg, dInitialState, dInitialNormalizer] = buffers.slice(10);
  const [flags, sequences, time, heads, valueHeads, keyWidth, valueWidth] = ints;
  const [qStride, kStride, vStride, gStride, dOStride, dqStride, dkStride, dvStride, dgStride] =
    ints.slice(7);
  const packed = flags & addFlags.packed ? cuSeqlens : undefined;
  const ranges = sequenceRanges(sequences, time, packed, sequences);
  const rule = { keyWidth, valueWidth, normalize: (flags & addFlags.normalize) !== 0 };
  const map = mapOf(flags);
  const [q, k] = [rawQ, rawK].map((x) => mapValues(map, x));
  const size = keyWidth * valueWidth;
  clearGradients(buffers, ints, ranges);
  for (let unit = 0; unit < ranges.length * valueHeads; unit++) {
    const [n, j] = [Math.floor(unit / valueHeads), unit % valueHeads];
    const [begin, end] = ranges[n];
    const key = Math.floor(j / (valueHeads / heads)) * keyWidth;
    const value = j * valueWidth;
    const head: Head = {
      ...{ ...rule, scale: floats[0], eps: floats[1], begin, end },
      q: rowsAt(q, qStride, key, keyWidth),
      k: rowsAt(k, kStride, key, keyWidth),
      v: rowsAt(v, vStride, value, valueWidth),
      dO: rowsAt(dO, dOStride, value, valueWidth),
      decay: decayOf(flags & 3, g, gStride, j, keyWidth),
    };
    const to: Targets = {
      dq: rowsAt(dq, dqStride, key, keyWidth),
      dk: rowsAt(dk, dkStride, key, keyWidth),
      dv: rowsAt(dv, dvStride, value, valueWidth),
      dg: gateTarget(flags, dg, dgStride, j, keyWidth),
    };
    const at = unit * size;
    const S0 = carried(flags & addFlags.initialState, initialState, at, size);
    const z0 = carried(flags & addFlags.initialNormalizer, initialNormalizer, unit * keyWidth, keyWidth);
    const R = carried(flags & addFlags.finalState, dFinalState, at, size);
    const dz = carried(flags & addFlags.finalNormalizer, dFinalNormalizer, unit * keyWidth, keyWidth);
    const kept = states(head, S0, z0);
    for (let row = end - 1; row >= begin; row--) {
      retreat(head, to, row, kept[row - begin], kept[row - begin + 1], R, dz);
    }
    if (flags & addFlags.initialStateGradient) dInitialState.set(R, at);
    if (flags & addFlags.initialNormalizerGradient) dInitialNormalizer.set(dz, unit * keyWidth);
  }
  slopes(map, dq, dqStride, q, qStride, ranges, heads * keyWidth);
  slopes(map, dk, dkStride, k, kStride, ranges, heads * keyWidth);
};
