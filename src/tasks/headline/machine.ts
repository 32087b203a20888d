import type { Device, Kernel } from "../../device/device.ts";
import { UnsupportedError } from "../../errors.ts";

function unmeasured(): void {
  throw new UnsupportedError(
    "[headline] the limits of a machine are those of its kernels: expected a WebAssembly device, got the host's",
  );
}

const fmaKernel: Kernel = { key: "peak.fma.forward", host: unmeasured };
const readKernel: Kernel = { key: "peak.read.forward", host: unmeasured };

/** Operations of one turn of the arithmetic loop. */
const operationsPerTurn = 960;
const turns = 400;
/** Floats of one unit of the reading loop. */
const unitFloats = 16_384;
/** Larger than any cache: 64 MiB. */
const memoryFloats = 2 ** 24;

/** What a machine can do at most, by all threads of a device together. */
export interface MachineLimits {
  /** Multiply-adds from registers alone count two. */
  readonly operationsPerSecond: number;
  /** Memory larger than the caches, read once. */
  readonly bytesPerSecond: number;
}

/** Seconds of the fastest of many runs. */
function fastest(run: () => void, runs: number): number {
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < runs; i++) {
    const began = performance.now();
    run();
    best = Math.min(best, (performance.now() - began) / 1000);
  }
  return best;
}

/** Measures the limits that floors are computed from; about a quarter of a second. */
export function measureLimits(device: Device): MachineLimits {
  const constants = device.allocatePersistent("float32", 32);
  device.write({ storage: constants, offset: 0 }, new Float32Array(32).fill(1e-3));
  const units = 64 * device.info().threads;
  const amount = units * turns * operationsPerTurn;
  const compute = (): void =>
    device.run({
      kernel: fmaKernel,
      buffers: [{ storage: constants, offset: 0 }],
      ints: [turns],
      floats: [],
      units,
      work: amount,
      scratchBytes: 512,
    });
  const operationsPerSecond = amount / fastest(compute, 100);
  const memory = device.allocatePersistent("float32", memoryFloats);
  device.write({ storage: memory, offset: 0 }, new Float32Array(memoryFloats).fill(1));
  const read = (): void =>
    device.run({
      kernel: readKernel,
      buffers: [{ storage: memory, offset: 0 }],
      ints: [],
      floats: [],
      units: memoryFloats / unitFloats,
      work: memoryFloats,
      scratchBytes: 512,
    });
  const bytesPerSecond = (4 * memoryFloats) / fastest(read, 20);
  device.release(constants);
  device.release(memory);
  return { operationsPerSecond, bytesPerSecond };
}
