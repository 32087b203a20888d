import { spawnSync } from "node:child_process";
import { mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { load } from "../src/checkpoint/load.ts";
import { save } from "../src/checkpoint/save.ts";
import { type Device, openWasm } from "../src/device/index.ts";
import { Decoder } from "../src/models/decoder.ts";
import { type DecoderConfig, formatFor } from "../src/models/index.ts";
import { initialize } from "../src/nn/module.ts";
import { Random } from "../src/tensor/random.ts";
import { type Bench, figure, percent } from "./bench.ts";

/** 50 million weights: 200 MB in F32. */
const config: DecoderConfig = {
  ...{ vocabularySize: 16_000, width: 512, layers: 10, heads: 4, pattern: ["gla"], tied: false },
  feedForward: { kind: "gated", width: 1792 },
};

const pieceBytes = 2 ** 23;

/** Loads until the engine has compiled what they run, as for every other figure. */
const warmUp = 10;

const median = (list: readonly number[]): number => [...list].sort((a, b) => a - b)[list.length >> 1]!;

/** Seconds of reading a whole file into one shared memory, piece by piece: nothing is looked at. */
async function plainRead(path: string, memory: Uint8Array): Promise<number> {
  const began = performance.now();
  const handle = await open(path, "r");
  try {
    for (let at = 0; ; ) {
      const { bytesRead } = await handle.read(memory, at, Math.min(pieceBytes, memory.length - at), at);
      if (bytesRead === 0) break;
      at += bytesRead;
    }
  } finally {
    await handle.close();
  }
  return (performance.now() - began) / 1000;
}

async function timedLoad(folder: string, device: Device): Promise<number> {
  const began = performance.now();
  const model = await load(folder, { device });
  const seconds = (performance.now() - began) / 1000;
  model.dispose();
  return seconds;
}

/** Bytes that a process of its own holds at most while it loads, beyond those before. */
function peakOf(folder: string): number {
  const script = fileURLToPath(new URL("./load-child.ts", import.meta.url));
  const { stdout, stderr } = spawnSync(process.execPath, ["--import", "tsx", script, folder], {
    encoding: "utf8",
  });
  const bytes = Number(stdout.trim());
  if (Number.isFinite(bytes) && bytes > 0) return bytes;
  throw new Error(`the process that measures memory failed: ${stderr}`);
}

async function writeModel(folder: string): Promise<number> {
  const device = await openWasm({ threads: 1 });
  const decoder = new Decoder(config);
  initialize(decoder, device, new Random(1));
  await save(folder, decoder, { modelType: formatFor(config).format.modelTypes[0]! });
  const bytes = 4 * decoder.parameterCount;
  decoder.dispose();
  device.close();
  return bytes;
}

/** Loading against a plain read of the same bytes, in turn. */
export const loadBench: Bench = {
  name: "load",
  about: "loading a published model of 200 MB in F32 against a plain read of its file into the same memory",
  columns: [
    figure("file", "name"),
    figure("MB", "megabytes"),
    figure("load GB/s", "loadRate", 2),
    figure("read GB/s", "readRate", 2),
    percent("of read", "share"),
    percent("medians", "medianShare"),
    figure("peak/weights", "peak", 3),
  ],
  async *run(context) {
    const folder = await mkdtemp(join(tmpdir(), "linnet-load-"));
    try {
      const bytes = await writeModel(folder);
      const path = join(folder, "model.safetensors");
      const memory = new WebAssembly.Memory({
        initial: Math.ceil(bytes / 65_536) + 16,
        maximum: 65_536,
        shared: true,
      });
      const target = new Uint8Array(memory.buffer);
      // Both memories were written once: the system's work on fresh pages is not reading.
      const device = await openWasm({ threads: 1 });
      await timedLoad(folder, device);
      await plainRead(path, target);
      for (let i = 0; i < warmUp; i++) await timedLoad(folder, device);
      const times: { load: number[]; read: number[] } = { load: [], read: [] };
      for (let i = 0; i < (context.measure.samples ?? 15); i++) {
        times.read.push(await plainRead(path, target));
        times.load.push(await timedLoad(folder, device));
      }
      device.close();
      const best = { load: Math.min(...times.load), read: Math.min(...times.read) };
      yield {
        name: "gla F32",
        megabytes: bytes / 1e6,
        loadRate: bytes / best.load / 1e9,
        readRate: bytes / best.read / 1e9,
        share: best.read / best.load,
        medianShare: median(times.read) / median(times.load),
        peak: peakOf(folder) / bytes,
      };
    } finally {
      await rm(folder, { recursive: true });
    }
  },
};
