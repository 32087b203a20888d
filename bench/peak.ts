import type { Device } from "../src/device/index.ts";
import { copyLimit, fmaLimit } from "../src/device/limits.ts";
import type { Contender } from "./measure.ts";
import { local } from "./measure.ts";

/** Larger than any cache: 64 MiB. */
const memoryFloats = 2 ** 24;

/** What one sample of a limit amounts to. */
export interface Limit {
  readonly contender: Contender;
  /** Operations, or bytes, of one repetition. */
  readonly amount: number;
}

/** The machine's limits, measured beside everything else; remembers the best it saw. */
export interface PeakMeter {
  /** Multiply-adds from registers alone on a device's threads. */
  fma(device: Device): Limit;
  /** A copy of memory larger than the caches: bytes read and written. */
  copy(device: Device): Limit;
  /** Best rate seen so far per second, by what was measured: `fma1`, `fma2`, `memory1`, `memory2`. */
  readonly best: Readonly<Record<string, number>>;
  /** Notes a timing of one of the limits. */
  note(key: string, rate: number): void;
}

function fma(device: Device): Limit {
  const { threads } = device.info();
  const { run, amount } = fmaLimit(device, threads === 1 ? 2 : 16 * threads);
  return { contender: local("peak", device, run), amount };
}

function copy(device: Device): Limit {
  const { run, amount } = copyLimit(device, memoryFloats);
  return { contender: local("copy", device, run), amount };
}

/** A meter that sets each limit up once per device. */
export function peakMeter(): PeakMeter {
  const best: Record<string, number> = {};
  const made = new Map<Device, Map<typeof fma, Limit>>();
  const once = (device: Device, make: typeof fma): Limit => {
    const limits = made.get(device) ?? new Map<typeof fma, Limit>();
    made.set(device, limits);
    const limit = limits.get(make) ?? make(device);
    limits.set(make, limit);
    return limit;
  };
  return {
    best,
    fma: (device) => once(device, fma),
    copy: (device) => once(device, copy),
    note: (key, rate) => {
      best[key] = Math.max(best[key] ?? 0, rate);
    },
  };
}
