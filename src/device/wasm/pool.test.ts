import assert from "node:assert/strict";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { garbageCollector } from "../../../tests/garbage-collector.ts";
import type { Dispatch, Kernel, Storage } from "../device.ts";
import { openWasm, openWasmSync } from "./open.ts";

const kernel: Kernel = {
  key: "selfTest.units.forward",
  host: ([y], [n], [value]) => {
    for (let i = 0; i < n!; i++) y![i] = value! * i;
  },
};

function job(storage: Storage, value: number, more: Partial<Dispatch> = {}): Dispatch {
  const n = storage.length;
  return {
    kernel,
    buffers: [{ storage, offset: 0 }],
    ints: [n, -1],
    floats: [value],
    units: Math.ceil(n / 1024),
    // So large that it is always shared, however busy the machine.
    work: 2 ** 26,
    scratchBytes: 4096,
    ...more,
  };
}

const expected = (length: number, value: number) =>
  Float32Array.from({ length }, (_, i) => Math.fround(value) * i);

const trapping = (storage: Storage, unit: number) => job(storage, 1, { ints: [storage.length, unit] });

for (const threads of [1, 2, 3]) {
  test(`pool: ${threads} threads give the same bits, job after job`, async () => {
    const device = await openWasm({ threads, poison: true });
    assert.equal(device.info().threads, threads);
    const storage = device.allocate("float32", 100_003);
    for (let turn = 0; turn < 300; turn++) {
      const value = 0.1 * turn;
      device.run(job(storage, value));
      if (turn % 50 === 49) await new Promise((resolve) => setTimeout(resolve, 5));
      if (turn % 10 === 0) {
        const found = device.readSync({ storage, offset: 0 }, storage.length);
        assert.deepEqual(found, expected(storage.length, value));
      }
    }
    device.close();
  });
}

test("pool: jobs of any number of units are done to the end", async () => {
  const device = await openWasm({ threads: 3 });
  for (const length of [0, 1, 1024, 1025, 5000, 12_289]) {
    const storage = device.allocate("float32", length);
    device.run(job(storage, 2));
    assert.deepEqual(device.readSync({ storage, offset: 0 }, length), expected(length, 2));
  }
  device.close();
});

test("pool: memory that grew is seen by every thread", async () => {
  const device = await openWasm({ threads: 2, initialBytes: 2 ** 20 });
  for (let turn = 0; turn < 12; turn++) {
    const storage = device.allocate("float32", 500_000);
    device.run(job(storage, turn));
    assert.deepEqual(
      device.readSync({ storage, offset: 499_000 }, 1000),
      expected(500_000, turn).slice(499_000),
    );
  }
  device.close();
});

test("pool: devices opened at once take threads in as they come up", async () => {
  const device = openWasmSync({ threads: 2 });
  const storage = device.allocate("float32", 50_000);
  for (let turn = 0; turn < 200; turn++) {
    device.run(job(storage, turn));
    if (turn % 20 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.equal(device.readSync({ storage, offset: 49_999 }, 1)[0], turn * 49_999);
  }
  assert.equal(device.info().threads, 2);
  device.close();
});

test("pool: a kernel that traps is an error and the device stays usable", async () => {
  for (const threads of [1, 2]) {
    const device = await openWasm({ threads });
    const storage = device.allocate("float32", 40_960);
    for (let unit = 0; unit < 40; unit++) {
      device.run(trapping(storage, unit));
      assert.throws(() => device.settle(), {
        code: "E_DEVICE",
        message: /selfTest\.units\.forward\] the kernel trapped.*unreachable/,
      });
      device.run(job(storage, unit));
      assert.deepEqual(device.readSync({ storage, offset: 0 }, 40_960), expected(40_960, unit));
    }
    device.close();
  }
});

test("pool: a thread that was ended is an error at the next shared job", async () => {
  const workers: Worker[] = [];
  const createWorker = (source: string) => {
    const worker = new Worker(source, { eval: true, execArgv: [] });
    workers.push(worker);
    return worker;
  };
  const device = await openWasm({ threads: 2, createWorker });
  const storage = device.allocate("float32", 50_000);
  device.run(job(storage, 1));
  device.settle();
  await workers[0]!.terminate();
  assert.throws(() => device.run(job(storage, 2)), { code: "E_DEVICE", message: /thread 1 is gone/ });
  assert.equal(device.readSync({ storage, offset: 49_999 }, 1)[0], 49_999);
  device.run(job(storage, 3, { work: 1 }));
  assert.match(device.info().notes.join(), /thread 1 is gone/);
  assert.equal(device.info().threads, 1);
  device.close();
});

test("pool: threads that die inside a job are an error, not a hang", async () => {
  const enterAndDie = "Atomics.add(new Int32Array(memory.buffer), block / 4 + 32, 1); return;";
  for (const instead of [enterAndDie, enterAndDie.replace("return;", "for (;;);")]) {
    const createWorker = (source: string) =>
      new Worker(source.replace("return exports.serve(block, thread);", instead), {
        eval: true,
        execArgv: [],
      });
    const device = await openWasm({ threads: 2, createWorker, workerTimeoutMs: 50 });
    const storage = device.allocate("float32", 50_000);
    // Without giving way to events: the death of the thread must not be announced by one.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
    const begin = performance.now();
    device.run(job(storage, 1, { work: 1e6 }));
    assert.throws(() => device.settle(), { code: "E_DEVICE", message: /thread of the device was lost/ });
    assert.ok(performance.now() - begin < 5000);
    assert.throws(() => device.run(job(storage, 1, { work: 1e6 })), {
      code: "E_DEVICE",
      message: /close the device/,
    });
    assert.equal(device.readSync({ storage, offset: 0 }, 1).length, 1);
    device.close();
  }
});

test("pool: threads that cannot start leave one thread and a note", async () => {
  for (const createWorker of [
    () => {
      throw new Error("blocked by policy");
    },
    () => new Worker('throw new Error("blocked by policy")', { eval: true }),
  ]) {
    const device = await openWasm({ threads: 2, createWorker });
    assert.equal(device.info().threads, 1);
    assert.match(device.info().notes.join(), /could not start: .*blocked by policy/);
    const storage = device.allocate("float32", 50_000);
    device.run(job(storage, 3));
    assert.deepEqual(device.readSync({ storage, offset: 0 }, 50_000), expected(50_000, 3));
    device.close();
  }
});

test("pool: scratch memory that does not fit is out of memory, before anything ran", async () => {
  let refuse = false;
  const device = await openWasm({ threads: 2, refuse: () => refuse });
  const storage = device.allocate("float32", 50_000);
  device.write({ storage, offset: 0 }, new Float32Array(50_000).fill(7));
  refuse = true;
  assert.throws(() => device.run(job(storage, 1)), { code: "E_OUT_OF_MEMORY" });
  refuse = false;
  assert.ok(device.readSync({ storage, offset: 0 }, 50_000).every((x) => x === 7));
  device.run(job(storage, 1));
  device.close();
});

test("pool: a device that nobody holds ends its threads", async () => {
  const workers: Worker[] = [];
  const createWorker = (source: string) => {
    const worker = new Worker(source, { eval: true, execArgv: [] });
    workers.push(worker);
    return worker;
  };
  const open = async () => {
    await openWasm({ threads: 2, createWorker });
  };
  await open();
  const collect = await garbageCollector();
  const gone = () => workers[0]!.threadId === -1;
  for (let i = 0; i < 1000 && !gone(); i++) {
    collect();
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.ok(gone());
});
