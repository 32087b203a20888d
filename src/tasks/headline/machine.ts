import type { Device } from "../../device/device.ts";
import { fmaLimit, readLimit } from "../../device/limits.ts";

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
  const compute = fmaLimit(device, 64 * device.info().threads);
  const operationsPerSecond = compute.amount / fastest(compute.run, 100);
  const read = readLimit(device, memoryFloats);
  const bytesPerSecond = read.amount / fastest(read.run, 20);
  compute.release();
  read.release();
  return { operationsPerSecond, bytesPerSecond };
}
