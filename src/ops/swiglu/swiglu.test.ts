import assert from "node:assert/strict";
import { test } from "node:test";
import { tensor } from "../../autograd/tensor.ts";
import { openWasm } from "../../device/index.ts";
import { Random } from "../../tensor/random.ts";
import { silu } from "../activation/index.ts";
import { multiply } from "../arithmetic/index.ts";
import { swiglu } from "./index.ts";

test("swiglu: bits are those of silu and a product", async () => {
  for (const tier of ["a", "b"] as const) {
    const device = await openWasm({ threads: 1, tier });
    for (const n of [1, 6, 16, 31, 5000]) {
      const random = new Random(n);
      const values = random.normal(new Float32Array(n)).map((x, i) => (i % 7 === 0 ? 40 * x : x));
      const gate = tensor(device, values, [n]);
      const up = tensor(device, random.normal(new Float32Array(n)), [n]);
      assert.deepEqual(swiglu(gate, up).dataSync(), multiply(silu(gate), up).dataSync());
    }
    device.close();
  }
});

test("swiglu: operands of two shapes are refused, both named", async () => {
  const device = await openWasm({ threads: 1, tier: "a" });
  const [gate, up] = [tensor(device, new Float32Array(6), [2, 3]), tensor(device, new Float32Array(3), [3])];
  assert.throws(() => swiglu(gate, up), { code: "E_SHAPE", message: /swiglu.*gate.*up/s });
  device.close();
});
