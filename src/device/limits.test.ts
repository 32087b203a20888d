import assert from "node:assert/strict";
import { test } from "node:test";
import { openWasm } from "./index.ts";
import { readLimitOf } from "./limits.ts";

test("reading the bytes of others takes whole units of each and leaves them as they are", async () => {
  const device = await openWasm({ threads: 1 });
  try {
    const sizes = [16_384, 40_000, 100];
    const storages = sizes.map((length) => device.allocatePersistent("float32", length));
    for (const storage of storages)
      device.write({ storage, offset: 0 }, new Float32Array(storage.length).fill(3));
    const before = device.info().dispatches;
    const reading = readLimitOf(device, storages);
    reading.run();
    assert.equal(reading.amount, 4 * (16_384 + 2 * 16_384), "the storage that fills no unit is left out");
    assert.equal(device.info().dispatches - before, 4, "two storages, once to note them and once more");
    reading.release();
    for (const storage of storages) {
      assert.ok(storage.alive);
      assert.ok(device.readSync({ storage, offset: 0 }, storage.length).every((value) => value === 3));
    }
  } finally {
    device.close();
  }
});
