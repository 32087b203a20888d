import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import type { Kernel } from "../device.ts";
import { environmentSync } from "./environment.ts";
import { kernelNames } from "./generated/kernels.ts";
import { base64 as tierB } from "./generated/tier-b.ts";
import { base64 as tierC } from "./generated/tier-c.ts";
import { openMemory } from "./memory.ts";
import { decodeBase64, withUnsharedMemory } from "./module.ts";
import { openWasm, openWasmSync } from "./open.ts";
import { selfTest } from "./self-test.ts";
import { chooseTier } from "./tiers.ts";

const kernel: Kernel = { key: "selfTest.units.forward", host: () => {} };
const major = Number.parseInt(process.versions.node, 10);

/** Runs a program in a Node of its own; what it printed and how it ended. */
function runProgram(text: string): Promise<{ output: string; code: number | null; signal: string | null }> {
  const open = JSON.stringify(fileURLToPath(new URL("./open.ts", import.meta.url)));
  const program = `const { openWasm, openWasmSync } = await import(${open});\n${text}`;
  const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", program], {
    timeout: 60_000,
  });
  let output = "";
  child.stdout.on("data", (chunk) => {
    output += chunk;
  });
  child.stderr.on("data", (chunk) => {
    output += chunk;
  });
  return new Promise((resolve) => {
    child.on("close", (code, signal) => resolve({ output, code, signal }));
  });
}

const program = `
  const device = await openWasm({ threads: 3 });
  const storage = device.allocate("float32", 50000);
  const kernel = { key: "selfTest.units.forward", host() {} };
  const buffers = [{ storage, offset: 0 }];
  device.run({ kernel, buffers, ints: [50000, -1], floats: [1], units: 49, work: 1e8, scratchBytes: 4096 });
  console.log("threads", device.info().threads, device.readSync({ storage, offset: 100 }, 1)[0]);
`;

test("opening: Node exits by itself with the device open, asleep or spinning", async () => {
  const sleep = "await new Promise((resolve) => setTimeout(resolve, 50));";
  for (const end of ["", sleep]) {
    const { output, code, signal } = await runProgram(program + end);
    assert.equal(output, "threads 3 100\n");
    assert.deepEqual([code, signal], [0, null]);
  }
});

test("opening: closing ends the threads and frees the memory", async () => {
  const { output, code } = await runProgram(`
    import { setFlagsFromString } from "node:v8";
    import { runInNewContext } from "node:vm";
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc");
    const megabytes = () => process.memoryUsage().rss / 2 ** 20;
    const once = async () => {
      const device = await openWasm({ threads: 2 });
      const storage = device.allocate("float32", 2 ** 25);
      device.write({ storage, offset: 0 }, new Float32Array(2 ** 25).fill(1));
      device.close();
      return device;
    };
    const closed = [];
    const before = megabytes();
    for (let i = 0; i < 6; i++) {
      closed.push(await once());
      for (let j = 0; j < 3; j++) {
        collect();
        await new Promise((resolve) => setTimeout(resolve, 30));
      }
    }
    const grown = megabytes() - before;
    console.log(grown < 300 ? "freed" : "held " + grown, closed[0].info().bytes.reserved, closed[0].info().threads);
  `);
  assert.equal(output, "freed 0 0\n");
  assert.equal(code, 0);
});

test("opening: nothing happens at import", async () => {
  const { output } = await runProgram(`
    const { validate } = WebAssembly;
    console.log(typeof openWasm, process._getActiveHandles().filter((h) => h.constructor.name === "Worker").length);
  `);
  assert.equal(output, "function 0\n");
});

test("opening: memory that is not shared runs the same kernels on one thread and says why", async () => {
  const device = await openWasm({ shared: false, threads: 4 });
  assert.equal(device.info().threads, 1);
  assert.match(device.info().notes.join(), /one thread: shared: false/);
  for (let turn = 0; turn < 4; turn++) {
    const storage = device.allocate("float32", 2_000_000);
    const buffers = [{ storage, offset: 0 }];
    const rest = { ints: [2_000_000, -1], floats: [1], units: 1954, work: 1e9, scratchBytes: 4096 };
    device.run({ kernel, buffers, ...rest });
    assert.equal(device.readSync({ storage, offset: 1_999_999 }, 1)[0], 1_999_999);
  }
  device.close();
});

test("opening: where less memory is granted the device starts below 4 GiB and says so", () => {
  const { Memory } = WebAssembly;
  const asked: number[] = [];
  const refusing = class extends Memory {
    constructor(descriptor: WebAssembly.MemoryDescriptor) {
      asked.push(descriptor.maximum!);
      if (descriptor.maximum! > 16384) throw new RangeError("could not allocate memory");
      super(descriptor);
    }
  };
  WebAssembly.Memory = refusing as typeof Memory;
  try {
    const device = openWasmSync({ threads: 1 });
    assert.deepEqual(asked, [65536, 32768, 16384]);
    assert.equal(device.info().bytes.limit, 2 ** 30);
    assert.match(device.info().notes.join(), /memory ends at 1024 MiB: the system refused 4096 MiB/);
    device.close();
    WebAssembly.Memory = class {
      constructor() {
        throw new RangeError("none");
      }
    } as unknown as typeof Memory;
    assert.throws(() => openMemory(true, 2 ** 24, 2 ** 32), { code: "E_DEVICE", message: /no memory.*none/ });
  } finally {
    WebAssembly.Memory = Memory;
  }
});

test("opening: only modules of ours can be made unshared", () => {
  const binary = withUnsharedMemory(decodeBase64(tierB));
  assert.throws(() => withUnsharedMemory(binary), { code: "E_DEVICE", message: /expected shared memory/ });
  assert.throws(() => withUnsharedMemory(binary.slice(0, 8)), { code: "E_DEVICE" });
});

test("opening: tiers a and b run where they are asked for, auto takes b", async () => {
  for (const [asked, got] of [
    ["a", "a"],
    ["b", "b"],
    ["auto", "b"],
  ] as const) {
    const device = await openWasm({ tier: asked, threads: 1 });
    assert.equal(device.info().tier, got);
    assert.deepEqual(device.info().notes, []);
    device.close();
  }
});

test("opening: tier c runs on Node 24 after its self-test, elsewhere b with a note", async () => {
  const device = await openWasm({ tier: "c", threads: 1 });
  const { tier, notes } = device.info();
  if (major < 24)
    assert.equal(notes.join(), `tier b instead of c: c needs Node 24 or newer, this is Node ${major}`);
  else if (tier === "b") assert.match(notes.join(), /tier b instead of c: the self-test ran/);
  else assert.deepEqual([tier, notes], ["c", []]);
  device.close();
});

test("opening: the self-test of tier c refuses wrong bits and missing speed", () => {
  openWasmSync({ threads: 1 }).close();
  const b = new WebAssembly.Module(decodeBase64(tierB));
  const c = new WebAssembly.Module(decodeBase64(tierC));
  const a = decodeBase64(tierC);
  // f32x4.relaxed_madd becomes relaxed_nmadd in every place: wrong signs.
  for (let i = 0; i + 2 < a.length; i++)
    if (a[i] === 253 && a[i + 1] === 133 && a[i + 2] === 2) a[i + 1] = 134;
  assert.match(`${selfTest(new WebAssembly.Module(a), b, true, kernelNames)}`, /other bits/);
  if (major < 24)
    assert.match(`${selfTest(c, b, true, kernelNames)}`, /self-test ran \d\.\d\d times as fast/);
});

test("opening: relaxed SIMD is missed aloud", () => {
  const { validate } = WebAssembly;
  const found = { ...environmentSync(), node: undefined };
  try {
    WebAssembly.validate = (bytes) => (bytes as Uint8Array).length < 35 && validate(bytes);
    assert.equal(chooseTier("auto", found).tier, "a");
    assert.match(chooseTier("auto", found).notes.join(), /no relaxed SIMD/);
    assert.throws(() => chooseTier("b", found), { code: "E_DEVICE", message: /no relaxed SIMD/ });
    WebAssembly.validate = () => false;
    assert.throws(() => chooseTier("a", found), { code: "E_DEVICE", message: /128-bit SIMD/ });
  } finally {
    WebAssembly.validate = validate;
  }
});

test("opening: kernels that may not be compiled are an error that says what to allow", async () => {
  const { compile, Module } = WebAssembly;
  try {
    const refuse = () => new WebAssembly.CompileError("blocked by policy");
    WebAssembly.compile = () => Promise.reject(refuse());
    WebAssembly.Module = class {
      constructor() {
        throw refuse();
      }
    } as unknown as typeof Module;
    const expected = { code: "E_DEVICE", message: /blocked by policy.*wasm-unsafe-eval/ };
    await assert.rejects(openWasm(), expected);
    assert.throws(() => openWasmSync(), expected);
  } finally {
    WebAssembly.compile = compile;
    WebAssembly.Module = Module;
  }
});

test("opening: options that make no sense are refused", async () => {
  for (const options of [{ threads: 0 }, { threads: 1.5 }, { threads: 1000 }, { tier: "z" as "a" }]) {
    await assert.rejects(openWasm(options), { code: "E_CONFIG" });
  }
});
