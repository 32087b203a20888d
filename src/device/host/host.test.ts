import assert from "node:assert/strict";
import { test } from "node:test";
import type { Kernel } from "../device.ts";
import { hostDevice } from "./host.ts";

const fill: Kernel = {
  key: "fill.all.forward",
  host: ([y], [n], [value]) => {
    y!.fill(value!, 0, n!);
  },
};

test("host writes, runs and reads in float64 and float32", async () => {
  for (const dtype of ["float64", "float32"] as const) {
    const device = hostDevice({ dtype });
    const storage = device.allocate(device.defaultDtype, 5);
    const buffers = [{ storage, offset: 1 }];
    device.run({ kernel: fill, buffers, ints: [3], floats: [0.1], units: 1, work: 3, scratchBytes: 0 });
    const value = dtype === "float64" ? 0.1 : Math.fround(0.1);
    assert.deepEqual([...(await device.read({ storage, offset: 0 }, 5))], [0, value, value, value, 0]);
    assert.equal(device.info().dispatches, 1);
  }
});

test("host scopes end what they hold and keep what is kept", () => {
  const device = hostDevice();
  const outer = device.enter();
  const inner = device.enter();
  const lost = device.allocate("float64", 4);
  const kept = device.allocate("float64", 2);
  inner.exit([kept]);
  assert.equal(lost.alive, false);
  assert.equal(kept.alive, true);
  assert.throws(() => device.readSync({ storage: lost, offset: 0 }, 1), {
    code: "E_DISPOSED",
    message: /scope ended/,
  });
  outer.exit([kept]);
  assert.deepEqual(device.info().bytes, {
    persistent: 16,
    scoped: 0,
    peak: 48,
    reserved: 16,
    limit: Number.POSITIVE_INFINITY,
  });
  device.release(kept);
  device.release(kept);
  assert.throws(() => device.readSync({ storage: kept, offset: 0 }, 1), { message: /released/ });
  assert.equal(device.info().bytes.persistent, 0);
});

test("host scopes may end in any order", () => {
  const device = hostDevice();
  const first = device.enter();
  const second = device.enter();
  const inSecond = device.allocate("float64", 1);
  first.exit([]);
  assert.equal(inSecond.alive, true);
  second.exit([inSecond]);
  assert.equal(inSecond.alive, true);
  assert.equal(device.info().bytes.persistent, 8);
});

test("host refuses ranges, dtypes and storages that do not fit", () => {
  const device = hostDevice();
  const storage = device.allocate("float64", 4);
  const at = (offset: number) => ({ storage, offset });
  assert.throws(() => device.readSync(at(2), 3), { code: "E_SHAPE" });
  assert.throws(() => device.readSync(at(-1), 1), { code: "E_SHAPE" });
  assert.throws(() => device.write(at(0), Float32Array.of(1)), { code: "E_DTYPE" });
  assert.throws(() => device.allocate("float64", 1.5), { code: "E_SHAPE" });
  assert.throws(() => hostDevice().readSync(at(0), 1), { code: "E_DEVICE" });
});

test("closing the host device ends every storage", () => {
  const device = hostDevice({ poison: true });
  const scope = device.enter();
  const scoped = device.allocate("float64", 1);
  const persistent = device.allocatePersistent("float64", 1);
  assert.deepEqual([...device.readSync({ storage: scoped, offset: 0 }, 1)], [Number.NaN]);
  device.close();
  device.close();
  scope.exit([]);
  assert.equal(scoped.alive || persistent.alive, false);
  assert.throws(() => device.readSync({ storage: persistent, offset: 0 }, 1), { message: /closed/ });
  assert.throws(() => device.allocate("float64", 1), { code: "E_DISPOSED" });
  assert.throws(() => device.enter(), { code: "E_DISPOSED" });
});
