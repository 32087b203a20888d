import assert from "node:assert/strict";
import { test } from "node:test";
import type { Dispatch, Kernel, Storage } from "../device.ts";
import { openWasm } from "./open.ts";

const units: Kernel = { key: "selfTest.units.forward", host: () => {} };
const copying: Kernel = { key: "move.copy.forward", host: () => {} };

/** y[i] = value · i; traps at one unit where it is named. Leaves rubbish in its scratch memory. */
function fill(storage: Storage, value: number, trapAt = -1, scratchBytes = 4096): Dispatch {
  const n = storage.length;
  return {
    ...{ kernel: units, buffers: [{ storage, offset: 0 }], ints: [n, trapAt], floats: [value] },
    ...{ units: Math.ceil(n / 1024), work: 2 ** 26, scratchBytes },
  };
}

function copy(from: Storage, to: Storage): Dispatch {
  const lengths = [1, 1, 1, 1, 1, from.length];
  const strides = [0, 0, 0, 0, 0, 1];
  return {
    ...{ kernel: copying, buffers: [from, to].map((storage) => ({ storage, offset: 0 })), floats: [] },
    ...{ ints: [from.length, ...lengths, ...strides, ...strides], units: Math.ceil(from.length / 4096) },
    ...{ work: from.length, scratchBytes: 64 },
  };
}

const expected = (length: number, value: number) =>
  Float32Array.from({ length }, (_, i) => Math.fround(value) * i);

test("queue: values are those of the order in which work came, however much of it waits", async () => {
  for (const threads of [1, 2]) {
    const device = await openWasm({ threads });
    const n = 5000;
    const source = device.allocate("float32", n);
    const copies = Array.from({ length: 300 }, () => device.allocate("float32", n));
    for (const [i, to] of copies.entries()) {
      device.run(fill(source, i));
      device.run(copy(source, to));
    }
    assert.equal(device.info().dispatches, 600);
    for (const [i, storage] of copies.entries())
      assert.deepEqual(device.readSync({ storage, offset: 0 }, n), expected(n, i));
    device.close();
  }
});

test("queue: what waiting work reads is still there when its memory has a new owner", async () => {
  for (const threads of [1, 2]) {
    const device = await openWasm({ threads });
    const n = 100_000;
    const results = [1, 2, 3, 4].map((turn) => {
      const source = device.allocate("float32", n);
      const result = device.allocate("float32", n);
      device.run(fill(source, turn));
      device.run(copy(source, result));
      device.release(source);
      if (turn === 1) {
        const next = device.allocate("float32", n);
        device.write({ storage: next, offset: 0 }, new Float32Array(n).fill(-1));
        device.release(next);
      }
      // Scratch memory that grows, and a run of arguments of its own, take what has just been given back.
      if (turn === 2) device.run(fill(device.allocate("float32", 2000), 0, -1, 4 * n));
      if (turn === 3) {
        const { recording } = device.record(() => device.run(fill(result, turn)));
        device.run(fill(result, 77));
        recording.replay();
      }
      if (turn === 4) device.view({ storage: device.allocate("float32", n), offset: 0 }, n)?.fill(-1);
      return result;
    });
    for (const [i, storage] of results.entries())
      assert.deepEqual(device.readSync({ storage, offset: 0 }, n), expected(n, i + 1));
    device.close();
  }
});

test("queue: what a scope keeps is complete when it moves", async () => {
  const device = await openWasm({ threads: 1 });
  const outer = device.enter();
  const inner = device.enter();
  const kept = [10, 20_000].map((n) => {
    const storage = device.allocate("float32", n);
    device.run(fill(storage, 3));
    return storage;
  });
  inner.exit(kept);
  outer.exit(kept);
  for (const storage of kept)
    assert.deepEqual(device.readSync({ storage, offset: 0 }, storage.length), expected(storage.length, 3));
  device.close();
});

test("queue: a fault is thrown to whoever looks next, and what came after it is dropped", async () => {
  for (const threads of [1, 2]) {
    const device = await openWasm({ threads });
    const storage = device.allocate("float32", 40_960);
    const other = device.allocate("float32", 4096);
    const trap = { code: "E_DEVICE", message: /the kernel trapped/ };
    device.write({ storage: other, offset: 0 }, new Float32Array(4096).fill(7));
    const looks = [
      () => device.settle(),
      () => device.readSync({ storage, offset: 0 }, 1),
      () => device.write({ storage, offset: 0 }, Float32Array.of(1)),
      () => device.view({ storage, offset: 0 }, 1),
    ];
    for (const look of looks) {
      device.run(fill(storage, 1, 3));
      device.run(fill(other, 2));
      assert.throws(look, trap);
      assert.ok(device.readSync({ storage: other, offset: 0 }, 4096).every((x) => x === 7));
    }
    const scope = device.enter();
    const kept = device.allocate("float32", 4096);
    device.run(fill(kept, 1, 0));
    scope.exit([kept]);
    assert.throws(() => device.settle(), trap);
    device.run(fill(storage, 5));
    assert.deepEqual(device.readSync({ storage, offset: 0 }, 40_960), expected(40_960, 5));
    device.close();
  }
});
