import assert from "node:assert/strict";
import { test } from "node:test";
import { scope, tensor } from "../../autograd/index.ts";
import { openWasm } from "../../device/index.ts";
import { dropout } from "./index.ts";

const size = 1 << 16;
/** Five standard deviations of a mean of so many products. */
const bound = 5 / Math.sqrt(size);

test("dropout: what falls says nothing about neighbours or about other seeds", async () => {
  const device = await openWasm({ threads: 1 });
  for (const p of [0.1, 0.5]) {
    // 1 where an element stays, less the mean, over the deviation.
    const draw = (seed: number): Float64Array => {
      const ones = new Float32Array(size).fill(1);
      const kept = scope(device, () => dropout(tensor(device, ones, [size]), { p, seed }).dataSync());
      return Float64Array.from(kept, (y) => ((y === 0 ? 0 : 1) - (1 - p)) / Math.sqrt(p * (1 - p)));
    };
    const together = (a: Float64Array, b: Float64Array, lag: number): number => {
      let sum = 0;
      for (let i = lag; i < size; i++) sum += a[i]! * b[i - lag]!;
      return Math.abs(sum) / size;
    };
    const first = draw(1);
    assert.ok(together(first, new Float64Array(size).fill(1), 0) < bound, `share of p = ${p}`);
    for (const lag of [1, 2, 3, 4, 8, 64, 256, 1024, 4096]) {
      assert.ok(together(first, first, lag) < bound, `p = ${p}, ${lag} apart`);
    }
    for (const seed of [2, 3, 257, 65_537, 2 ** 32 + 1]) {
      for (const lag of [0, 1, 4])
        assert.ok(together(first, draw(seed), lag) < bound, `p = ${p}, seed ${seed}`);
    }
  }
  device.close();
});
