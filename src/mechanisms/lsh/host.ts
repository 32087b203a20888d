/** Hashing, sorting and counting of pairs in plain loops. */
import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** Far below every score, finite so that rows of hidden pairs stay numbers. */
const hidden = -1e30;

/** Order of the tokens by bucket, their groups, and the rows that slots name, of every round of every head. */
export const sortHost: HostKernel = (buffers, ints) => {
  const [q, rotations, order, groups, ids, inverse] = buffers as TypedArray[];
  const [B, T, H, K, half, R, group, slots, batchStride, rowStride, headStride] = ints as number[];
  for (let unit = 0; unit < B! * H! * R!; unit++) {
    const round = unit % R!;
    const [b, h] = [Math.floor(unit / R! / H!), Math.floor(unit / R!) % H!];
    const buckets = Array.from({ length: T! }, (_, t) => {
      const from = b * batchStride! + t * rowStride! + h * headStride!;
      const rotated = Array.from({ length: half! }, (_, n) => {
        let sum = 0;
        for (let i = 0; i < K!; i++) sum += q![from + i]! * rotations![(round * K! + i) * half! + n]!;
        return sum;
      });
      const both = [...rotated, ...rotated.map((value) => -value)];
      return both.reduce((best, value, n) => (value > both[best]! ? n : best), 0);
    });
    const sorted = buckets.map((_, t) => t).sort((x, y) => buckets[x]! - buckets[y]! || x - y);
    for (const [place, t] of sorted.entries()) {
      const at = (b * T! + t) * H! + h;
      order![unit * T! + place] = t;
      groups![unit * T! + t] = Math.floor(place / group!);
      ids![unit * slots! + place] = at;
      inverse![round * B! * T! * H! + at] = unit * slots! + place;
    }
    for (let place = T!; place < slots!; place++) ids![unit * slots! + place] = (b * T! + T! - 1) * H! + h;
  }
};

/** What is added to the scores of every pair of a group with itself and the one before. */
export const pairsHost: HostKernel = (buffers, ints, floats) => {
  const [order, groups, logs, bias, mask] = buffers as TypedArray[];
  const [T, R, group, groupCount, causal] = ints as [number, number, number, number, number];
  const wide = 2 * group;
  const units = mask!.length === 0 ? 0 : order!.length / Math.max(1, T);
  for (let row = 0; row < units; row++) {
    const first = Math.floor(row / R) * R;
    for (let at = 0; at < groupCount; at++) {
      const unit = row * groupCount + at;
      const tokens = Array.from({ length: wide }, (_, j) => {
        const place = (at - 1) * group + j;
        return place >= 0 && place < T ? order![row * T + place]! : -1;
      });
      const groupOf = (round: number, t: number): number => groups![(first + round) * T + t]!;
      for (let j = 0; j < wide; j++) mask![unit * wide + j] = Number(tokens[j]! >= 0);
      for (let i = 0; i < group; i++)
        for (let j = 0; j < wide; j++) {
          const [own, other] = [tokens[group + i]!, tokens[j]!];
          const to = (unit * group + i) * wide + j;
          if (own < 0 || other < 0 || (causal !== 0 && other > own)) bias![to] = hidden;
          else if (own === other) bias![to] = floats[0]!;
          else {
            let met = 0;
            for (let r = 0; r < R; r++) {
              const apart = groupOf(r, own) - groupOf(r, other);
              if (apart === 0 || apart === 1) met++;
            }
            bias![to] = -logs![met]!;
          }
        }
    }
  }
};
