import type { DeviceInfo, Dispatch, Storage } from "../../src/device/index.ts";

/** What the test asks of the page. */
export interface Question {
  readonly threads: number;
  /** Pages of memory above which the system is made to refuse. */
  readonly refuseAbove?: number;
  /** Address of the script for threads, where `blob:` is forbidden. */
  readonly threadScript?: string;
}

/** What the page saw. */
export interface Answer {
  readonly info?: DeviceInfo;
  readonly checksum?: number;
  readonly shared?: boolean;
  readonly error?: string;
}

export const length = 1_000_000;

/** A job large enough to be shared between threads. */
export function job(storage: Storage): Dispatch {
  const kernel = { key: "selfTest.units.forward", host: () => {} };
  const buffers = [{ storage, offset: 0 }];
  return { kernel, buffers, ints: [length, -1], floats: [0.1], units: 977, work: 1e8, scratchBytes: 4096 };
}

/** One number for the bits of many. */
export function checksum(values: Float32Array): number {
  let sum = 0;
  for (const word of new Uint32Array(values.buffer)) sum = (Math.imul(sum, 31) + word) | 0;
  return sum;
}
