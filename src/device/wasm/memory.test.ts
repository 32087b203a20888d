import assert from "node:assert/strict";
import { test } from "node:test";
import { garbageCollector } from "../../../tests/garbage-collector.ts";
import type { Kernel } from "../device.ts";
import { openWasmSync } from "./open.ts";

const units: Kernel = {
  key: "selfTest.units.forward",
  host: ([y], [n], [value]) => {
    for (let i = 0; i < n!; i++) y![i] = value! * i;
  },
};

type Opened = ReturnType<typeof openWasmSync>;

const open = (options: Parameters<typeof openWasmSync>[0] = {}): Opened =>
  openWasmSync({ threads: 1, ...options });

function filled(device: Opened, length: number, value: number) {
  const storage = device.allocate("float32", length);
  device.write({ storage, offset: 0 }, new Float32Array(length).fill(value));
  return storage;
}

const all = (device: Opened, storage: ReturnType<Opened["allocate"]>, value: number) =>
  device.readSync({ storage, offset: 0 }, storage.length).every((x) => x === value);

test("wasm memory: a repeated step takes nothing from the heap after its first turn", () => {
  const device = open();
  const step = () => {
    const scope = device.enter();
    for (let i = 0; i < 50; i++) {
      const inner = device.enter();
      const temporary = device.allocate("float32", 100 * i + 1);
      const kept = device.allocate("float32", 1000 * i + 1);
      device.release(temporary);
      device.allocate("float32", 100 * i + 1);
      device.allocate("float32", 300_000);
      inner.exit([kept]);
    }
    scope.exit([]);
  };
  step();
  step();
  const before = device.info();
  for (let i = 0; i < 20; i++) step();
  const after = device.info();
  assert.equal(after.allocations, before.allocations);
  assert.equal(after.bytes.reserved, before.bytes.reserved);
  assert.equal(after.bytes.scoped, 0);
  assert.equal(after.bytes.persistent, 0);
  device.close();
});

test("wasm memory: what a scope releases serves its next allocation", () => {
  const device = open();
  const scope = device.enter();
  for (let i = 0; i < 10_000; i++) device.release(device.allocate("float32", 1000));
  for (let i = 0; i < 100; i++) device.release(device.allocate("float32", 1_000_000));
  assert.ok(device.info().bytes.reserved <= 2 ** 24, `${device.info().bytes.reserved}`);
  scope.exit([]);
  device.close();
});

test("wasm memory: sizes that change from step to step do not pile up", () => {
  const device = open();
  for (let i = 0; i < 300; i++) {
    const scope = device.enter();
    device.allocate("float32", 1_000_000 + i * 10_007);
    device.allocate("float32", 200_000 + i * 1009);
    scope.exit([]);
  }
  assert.ok(device.info().bytes.reserved < 2 ** 26, `${device.info().bytes.reserved}`);
  device.close();
});

test("wasm memory: kept storages hold their values in the outer scope and beyond", () => {
  const device = open();
  for (const length of [1, 1000, 200_000, 1_000_000]) {
    const outer = device.enter();
    const inner = device.enter();
    const lost = filled(device, length, 1);
    const kept = filled(device, length, 2);
    inner.exit([kept]);
    const later = device.enter();
    filled(device, length, 3);
    later.exit([]);
    assert.equal(lost.alive, false);
    assert.ok(all(device, kept, 2));
    assert.equal(kept.persistent, false);
    outer.exit([kept]);
    const again = device.enter();
    filled(device, length, 4);
    again.exit([]);
    assert.ok(all(device, kept, 2));
    assert.equal(kept.persistent, true);
    assert.equal(device.info().bytes.persistent, 4 * length);
    device.release(kept);
    assert.equal(device.info().bytes.persistent, 0);
  }
  device.close();
});

test("wasm memory: scopes that end in any order do not touch each other", () => {
  const device = open();
  const scopes = Array.from({ length: 8 }, () => device.enter());
  const lives = scopes.map((scope) => ({ scope, held: [] as ReturnType<Opened["allocate"]>[] }));
  const order = [3, 0, 7, 5, 1, 6, 2, 4];
  lives.at(-1)!.held.push(filled(device, 5000, 7));
  for (const [turn, index] of order.entries()) {
    const { scope, held } = lives[index]!;
    scope.exit(turn % 2 === 0 ? held : []);
    scope.exit([]);
    assert.ok(held.every((storage) => storage.alive === (turn % 2 === 0)));
    const storage = filled(device, 3000 + turn, turn);
    const innermost = Math.max(...lives.map((_, i) => (order.indexOf(i) > turn ? i : -1)));
    if (innermost >= 0) lives[innermost]!.held.push(storage);
    for (const other of lives) {
      for (const one of other.held) {
        if (one.alive && one.length > 3000 && one.length < 3010)
          assert.ok(all(device, one, one.length - 3000));
      }
    }
  }
  device.close();
});

test("wasm memory: a dead storage is refused everywhere and says how it ended", () => {
  const device = open();
  const scope = device.enter();
  const scoped = device.allocate("float32", 10);
  const freed = device.allocate("float32", 10);
  device.release(freed);
  device.release(freed);
  scope.exit([]);
  const persistent = device.allocate("float32", 10);
  const use = (storage: typeof scoped) => [
    () => device.readSync({ storage, offset: 0 }, 1),
    () => device.write({ storage, offset: 0 }, Float32Array.of(1)),
    () => {
      const buffers = [{ storage, offset: 0 }];
      device.run({
        kernel: units,
        buffers,
        ints: [1, -1],
        floats: [0],
        units: 1,
        work: 1,
        scratchBytes: 4096,
      });
    },
  ];
  for (const f of use(scoped)) assert.throws(f, { code: "E_DISPOSED", message: /its scope ended/ });
  for (const f of use(freed)) assert.throws(f, { code: "E_DISPOSED", message: /it was released/ });
  device.close();
  device.close();
  for (const f of use(persistent)) assert.throws(f, { code: "E_DISPOSED", message: /closed/ });
  assert.equal(persistent.alive, false);
  for (const f of [() => device.allocate("float32", 1), () => device.enter()]) {
    assert.throws(f, { code: "E_DISPOSED", message: /closed/ });
  }
});

test("wasm memory: running out names the bytes and leaves the device usable", () => {
  const device = open({ maximumBytes: 2 ** 25 });
  const held = filled(device, 1000, 5);
  const scope = device.enter();
  const first = device.allocate("float32", 2 ** 22);
  const asked = new RegExp(`room for ${2 ** 24 + 4} bytes, got at most \\d+ .*of ${2 ** 25}`);
  for (const allocate of [device.allocate, device.allocatePersistent]) {
    assert.throws(() => allocate.call(device, "float32", 2 ** 22 + 1), {
      code: "E_OUT_OF_MEMORY",
      message: asked,
    });
  }
  assert.equal(device.info().bytes.scoped, first.length * 4);
  device.release(first);
  device.release(device.allocate("float32", 2 ** 22 + 1));
  scope.exit([]);
  assert.ok(all(device, held, 5));
  device.close();
});

test("wasm memory: whichever allocation fails, nothing is lost and nothing leaks", () => {
  const job = (device: Opened, failAt: { at: number }) => {
    const outer = device.enter();
    try {
      const inner = device.enter();
      let kept: ReturnType<Opened["allocate"]>[] = [];
      try {
        filled(device, 20_000, 1);
        kept = [filled(device, 20_000, 2), filled(device, 30_000, 3), filled(device, 400_000, 4)];
      } finally {
        inner.exit(kept);
      }
      const [a, b, c] = kept;
      assert.ok(all(device, a!, 2) && all(device, b!, 3) && all(device, c!, 4));
      outer.exit([a!, b!]);
      filled(device, 20_000, 5);
      assert.ok(all(device, a!, 2) && all(device, b!, 3));
      device.release(a!);
      device.release(b!);
      return true;
    } catch (error) {
      assert.equal((error as { code?: string }).code, "E_OUT_OF_MEMORY", `${failAt.at}: ${error}`);
      return false;
    } finally {
      outer.exit([]);
    }
  };
  const counter = { count: 0, at: 0 };
  const device = open({ refuse: () => ++counter.count === counter.at });
  assert.equal(job(device, counter), true);
  const allocations = counter.count;
  assert.ok(allocations > 8);
  const last = device.allocatePersistent("float32", 1);
  for (let at = 1; at <= allocations; at++) {
    counter.count = 0;
    counter.at = at;
    job(device, counter);
    assert.equal(device.info().bytes.scoped, 0, `scoped after ${at}`);
  }
  counter.at = 0;
  const reserved = device.info().bytes.reserved;
  for (let i = 0; i < 5; i++) assert.equal(job(device, counter), true);
  assert.equal(device.info().bytes.reserved, reserved);
  assert.ok(last.alive);
  device.close();
});

test("wasm memory: grows to its maximum and no further", () => {
  const device = open({ initialBytes: 2 ** 20, maximumBytes: 2 ** 26 });
  assert.equal(device.info().bytes.reserved, 2 ** 20);
  const storages = [];
  for (let i = 0; i < 15; i++) storages.push(filled(device, 2 ** 20, i));
  assert.throws(() => device.allocate("float32", 2 ** 20), { code: "E_OUT_OF_MEMORY" });
  assert.ok(storages.every((storage, i) => all(device, storage, i)));
  assert.ok(device.info().bytes.reserved <= 2 ** 26);
  device.close();
});

test("wasm memory: an address beyond 2 GiB works", () => {
  const device = open();
  const storages = Array.from({ length: 3 }, () => device.allocate("uint8", 1.2e9));
  const storage = storages[2]!;
  device.write({ storage, offset: 1.19e9 }, Uint8Array.of(1, 2, 3));
  assert.deepEqual([...device.readSync({ storage, offset: 1.19e9 + 1 }, 2)], [2, 3]);
  const high = device.allocate("float32", 1000);
  const buffers = [{ storage: high, offset: 500 }];
  device.run({
    kernel: units,
    buffers,
    ints: [500, -1],
    floats: [1.5],
    units: 1,
    work: 500,
    scratchBytes: 4096,
  });
  assert.deepEqual([...device.readSync({ storage: high, offset: 998 }, 2)], [1.5 * 498, 1.5 * 499]);
  device.close();
});

test("wasm memory: poison fills what is new and what comes again", () => {
  const device = open({ poison: true });
  const scope = device.enter();
  for (let i = 0; i < 2; i++) {
    const floats = device.allocate("float32", 3);
    assert.deepEqual([...device.readSync({ storage: floats, offset: 0 }, 3)], [NaN, NaN, NaN]);
    device.write({ storage: floats, offset: 0 }, Float32Array.of(1, 2, 3));
    device.release(floats);
  }
  const ints = device.allocatePersistent("int32", 1);
  assert.deepEqual([...device.readSync({ storage: ints, offset: 0 }, 1)], [0x7f7f7f7f]);
  scope.exit([]);
  device.close();
});

test("wasm memory: dtypes, ranges and foreign storages are refused", () => {
  const device = open();
  const other = open();
  const storage = device.allocate("float32", 4);
  assert.equal(device.holds("float64"), false);
  assert.throws(() => device.allocate("float64", 1), { code: "E_DTYPE", message: /hostDevice/ });
  assert.throws(() => device.write({ storage, offset: 0 }, Int32Array.of(1)), { code: "E_DTYPE" });
  assert.throws(() => device.write({ storage, offset: 3 }, Float32Array.of(1, 2)), { code: "E_SHAPE" });
  assert.throws(() => device.readSync({ storage, offset: 0.5 }, 1), { code: "E_SHAPE" });
  assert.throws(() => device.allocate("float32", -1), { code: "E_SHAPE" });
  assert.throws(() => other.readSync({ storage, offset: 0 }, 1), { code: "E_DEVICE" });
  assert.throws(() => other.release(storage), { code: "E_DEVICE" });
  const empty = device.allocate("float32", 0);
  assert.equal(device.readSync({ storage: empty, offset: 0 }, 0).length, 0);
  const run = (offset: number, key = units.key) => {
    const kernel = { ...units, key };
    const buffers = [{ storage, offset }];
    device.run({ kernel, buffers, ints: [0, -1], floats: [0], units: 0, work: 0, scratchBytes: 0 });
  };
  run(4);
  assert.throws(() => run(5), { code: "E_SHAPE" });
  assert.throws(() => run(-1), { code: "E_SHAPE" });
  assert.throws(() => run(0, "no.such.kernel"), { code: "E_UNSUPPORTED", message: /no\.such\.kernel/ });
  assert.equal(device.has({ ...units, key: "no.such.kernel" }), false);
  device.close();
  other.close();
});

test("wasm memory: a persistent storage nobody holds gives its memory back", async () => {
  const device = open();
  const collect = await garbageCollector();
  const drop = () => {
    for (let i = 0; i < 20; i++) device.allocatePersistent("float32", 10_000);
  };
  drop();
  assert.equal(device.info().bytes.persistent, 800_000);
  for (let i = 0; i < 1000 && device.info().bytes.persistent > 0; i++) {
    collect();
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.equal(device.info().bytes.persistent, 0);
  device.close();
});
