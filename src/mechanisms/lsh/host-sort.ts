/** Hashing and sorting in plain loops. */
import type { HostKernel } from "../../device/device.ts";
import type { TypedArray } from "../../tensor/dtype.ts";

/** Tokens by their group and then by position, and the group of each, of every round of every head. */
export const sortHost: HostKernel = (buffers, ints) => {
  const [q, rotations, order, groups] = buffers as TypedArray[];
  const [B, T, H, K, half, R, group, , batchStride, rowStride, headStride] = ints as number[];
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
    const line = buckets.map((_, t) => t).sort((x, y) => buckets[x]! - buckets[y]! || x - y);
    for (let place = 0; place < T!; place += group!) {
      const members = line.slice(place, place + group!).sort((x, y) => x - y);
      for (const [n, t] of members.entries()) {
        order![unit * T! + place + n] = t;
        groups![unit * T! + t] = place / group!;
      }
    }
  }
};
