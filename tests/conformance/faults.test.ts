/** The n-th allocation fails, for every n of a small job: an error that says so, and a device that goes on. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { scope } from "../../src/autograd/scope.ts";
import { backward } from "../../src/autograd/tape.ts";
import { tensor } from "../../src/autograd/tensor.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import { OutOfMemoryError } from "../../src/errors.ts";
import { silu } from "../../src/ops/activation/index.ts";
import { add, multiply } from "../../src/ops/arithmetic/index.ts";
import { rmsNorm } from "../../src/ops/norm/index.ts";
import { sum } from "../../src/ops/reduce/index.ts";
import { softmax } from "../../src/ops/softmax/index.ts";

test("a job whose n-th allocation fails leaves the device usable, for every n", async () => {
  let countdown = Number.POSITIVE_INFINITY;
  const device = await openWasm({ threads: 1, poison: true, refuse: () => --countdown < 0 });
  const job = (): number =>
    scope(device, () => {
      const x = tensor(device, [0.5, -1, 2, 3, -0.25, 1], [2, 3], { requiresGrad: true });
      const w = tensor(device, [1, 2, 0.5], [3], { requiresGrad: true });
      const y = sum(multiply(softmax(rmsNorm(x, w)), add(silu(x), w)));
      backward(y);
      return y.dataSync()[0]! + x.grad!.dataSync()[0]! + w.grad!.dataSync()[2]!;
    });
  const expected = job();
  const before = device.info().bytes;
  let failures = 0;
  for (let n = 0; ; n++) {
    countdown = n;
    let result: number | undefined;
    try {
      result = job();
    } catch (error) {
      assert.ok(error instanceof OutOfMemoryError, `${error}`);
      failures++;
    }
    countdown = Number.POSITIVE_INFINITY;
    assert.equal(device.info().bytes.scoped, before.scoped, `bytes held after failure ${n}`);
    assert.equal(device.info().bytes.persistent, before.persistent, `bytes kept after failure ${n}`);
    assert.equal(job(), expected, `after failure ${n}`);
    if (result === undefined) continue;
    assert.equal(result, expected);
    break;
  }
  assert.ok(failures > 10, `only ${failures} allocations were refused`);
  device.close();
});
