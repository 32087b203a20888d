/** The additive recurrence as plain loops, token after token, written from its equations. */
import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import { mapValues, type Pointwise, pointwiseOf } from "../feature-maps/pointwise.ts";
import { decayCodes, sequenceRanges } from "./problem.ts";

/** Bits that say which optional operands are there; the two lowest hold the decay. */
export const addFlags = {
  normalize: 4,
  initialState: 8,
  initialNormalizer: 16,
  finalState: 32,
  finalNormalizer: 64,
  packed: 128,
  gateGradient: 256,
  initialStateGradient: 512,
  initialNormalizerGradient: 1024,
} as const;

/** What q and k pass through stands above these bits. */
export const mapShift = 12;

/** What flags say that q and k pass through. */
export function mapOf(flags: number): Pointwise | undefined {
  return pointwiseOf(flags >> mapShift);
}

/** exp(g) of a channel at a row of one value head, wherever its gate lies. */
export function decayOf(
  decay: number,
  g: TypedArray,
  stride: number,
  head: number,
  keyWidth: number,
): (row: number, channel: number) => number {
  if (decay === decayCodes.none) return () => 1;
  if (decay === decayCodes.head) return () => Math.exp(g[head]);
  if (decay === decayCodes.scalar) return (row) => Math.exp(g[row * stride + head]);
  return (row, channel) => Math.exp(g[row * stride + head * keyWidth + channel]);
}

/** Where one value head of one token lies. */
interface Token {
  readonly q: number;
  readonly k: number;
  readonly v: number;
  readonly o: number;
}

/** A carried state that is changed in place. */
interface State {
  readonly S: TypedArray;
  readonly s: number;
  readonly z: TypedArray | undefined;
  readonly channel: number;
}

interface Rule {
  readonly keyWidth: number;
  readonly valueWidth: number;
  readonly scale: number;
  readonly eps: number;
}

/** S <- a S + k vᵀ, z <- a z + k, o = scale Sᵀq or scale Sᵀq / (scale z·q + eps); 0 where that divides by 0. */
function advance(
  rule: Rule,
  [q, k, v, o]: readonly TypedArray[],
  at: Token,
  { S, s, z, channel }: State,
  a: (channel: number) => number,
): void {
  const { keyWidth, valueWidth, scale, eps } = rule;
  const read = new Float64Array(valueWidth);
  let total = 0;
  for (let c = 0; c < keyWidth; c++) {
    const decay = a(c);
    const query = scale * q[at.q + c];
    for (let j = 0; j < valueWidth; j++) {
      const i = s + c * valueWidth + j;
      S[i] = decay * S[i] + k[at.k + c] * v[at.v + j];
      read[j] += query * S[i];
    }
    if (z === undefined) continue;
    z[channel + c] = decay * z[channel + c] + k[at.k + c];
    total += query * z[channel + c];
  }
  const denominator = z === undefined ? 1 : total + eps;
  for (let j = 0; j < valueWidth; j++) o[at.o + j] = denominator === 0 ? 0 : read[j] / denominator;
}

/** A part of a carried state in float64, zeros where there is none. */
export function carried(there: number, from: TypedArray, at: number, length: number): Float64Array {
  return there ? Float64Array.from(from.subarray(at, at + length)) : new Float64Array(length);
}

/** The causal forward, whichever form it stands for. */
export const addForwardHost: HostKernel = (buffers, ints, floats) => {
  const [rawQ, rawK, v, g, initialState, initialNormalizer, cuSeqlens, o, finalState, finalNormalizer] =
    buffers;
  const [flags, sequences, time, heads, valueHeads, keyWidth, valueWidth] = ints;
  const [qStride, kStride, vStride, gStride, oStride] = ints.slice(7);
  const rule = { keyWidth, valueWidth, scale: floats[0], eps: floats[1] };
  const [q, k] = [rawQ, rawK].map((x) => mapValues(mapOf(flags), x));
  const packed = flags & addFlags.packed ? cuSeqlens : undefined;
  for (const [n, [begin, end]] of sequenceRanges(sequences, time, packed, sequences).entries()) {
    for (let head = 0; head < valueHeads; head++) {
      const key = Math.floor(head / (valueHeads / heads)) * keyWidth;
      const channel = (n * valueHeads + head) * keyWidth;
      const size = keyWidth * valueWidth;
      const S = carried(flags & addFlags.initialState, initialState, channel * valueWidth, size);
      const z = carried(flags & addFlags.initialNormalizer, initialNormalizer, channel, keyWidth);
      const state = { S, s: 0, z: flags & addFlags.normalize ? z : undefined, channel: 0 };
      const decay = decayOf(flags & 3, g, gStride, head, keyWidth);
      for (let row = begin; row < end; row++) {
        const at = {
          q: row * qStride + key,
          k: row * kStride + key,
          v: row * vStride + head * valueWidth,
          o: row * oStride + head * valueWidth,
        };
        advance(rule, [q, k, v, o], at, state, (c) => decay(row, c));
      }
      if (flags & addFlags.finalState) finalState.set(S, channel * valueWidth);
      if (flags & addFlags.finalNormalizer) finalNormalizer.set(z, channel);
    }
  }
};

/** One token for every row, on the row's slot of a slab of states. */
export const addStepHost: HostKernel = (buffers, ints, floats) => {
  const [rawQ, rawK, v, g, slots, states, normalizers, o] = buffers;
  const [flags, rows, heads, valueHeads, keyWidth, valueWidth, ...strides] = ints;
  const [qStride, kStride, vStride, gStride, oStride] = strides;
  const rule = { keyWidth, valueWidth, scale: floats[0], eps: floats[1] };
  const [q, k] = [rawQ, rawK].map((x) => mapValues(mapOf(flags), x));
  for (let row = 0; row < rows; row++) {
    for (let head = 0; head < valueHeads; head++) {
      const key = Math.floor(head / (valueHeads / heads)) * keyWidth;
      const channel = (slots[row] * valueHeads + head) * keyWidth;
      const z = flags & addFlags.normalize ? normalizers : undefined;
      const decay = decayOf(flags & 3, g, gStride, head, keyWidth);
      const at = {
        q: row * qStride + key,
        k: row * kStride + key,
        v: row * vStride + head * valueWidth,
        o: row * oStride + head * valueWidth,
      };
      const state = { S: states, s: channel * valueWidth, z, channel };
      advance(rule, [q, k, v, o], at, state, (c) => decay(row, c));
    }
  }
};

/** total[row] += every part's row. */
export const addPartsHost: HostKernel = ([total, parts], [rows, width, stride, count]) => {
  for (let p = 0; p < count; p++) {
    for (let row = 0; row < rows; row++) {
      for (let j = 0; j < width; j++) total[row * stride + j] += parts[(p * rows + row) * width + j];
    }
  }
};
