import type { Device, Kernel, Slice } from "../src/device/index.ts";
import type { Contender } from "./measure.ts";
import { local } from "./measure.ts";

/** Operations of one turn of the arithmetic loop, whatever the tier. */
const operationsPerTurn = 960;
const turns = 400;
/** Floats of one unit of the memory loops. */
const unitFloats = 16_384;
/** Larger than any cache: 64 MiB. */
const memoryFloats = 2 ** 24;

function unmeasured(): void {
  throw new Error("the limits of a machine are measured on devices that have them as kernels");
}

const fmaKernel: Kernel = { key: "peak.fma.forward", host: unmeasured };
const copyKernel: Kernel = { key: "peak.copy.forward", host: unmeasured };

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

function fmaLimit(device: Device): Limit {
  const storage = device.allocatePersistent("float32", 32);
  device.write({ storage, offset: 0 }, new Float32Array(32).fill(1e-3));
  const units = device.info().threads === 1 ? 2 : 16 * device.info().threads;
  const amount = units * turns * operationsPerTurn;
  const run = (): void => {
    device.run({
      kernel: fmaKernel,
      buffers: [{ storage, offset: 0 }],
      ints: [turns],
      floats: [],
      units,
      work: amount,
      scratchBytes: 512,
    });
  };
  return { contender: local("peak", run), amount };
}

function copyLimit(device: Device): Limit {
  const slice = (): Slice => ({ storage: device.allocatePersistent("float32", memoryFloats), offset: 0 });
  const [to, from] = [slice(), slice()];
  const run = (): void => {
    device.run({
      kernel: copyKernel,
      buffers: [to, from],
      ints: [],
      floats: [],
      units: memoryFloats / unitFloats,
      work: memoryFloats,
      scratchBytes: 0,
    });
  };
  return { contender: local("copy", run), amount: 8 * memoryFloats };
}

/** A meter that sets each limit up once per device. */
export function peakMeter(): PeakMeter {
  const best: Record<string, number> = {};
  const made = new Map<Device, Map<typeof fmaLimit, Limit>>();
  const once = (device: Device, make: typeof fmaLimit): Limit => {
    const limits = made.get(device) ?? new Map<typeof fmaLimit, Limit>();
    made.set(device, limits);
    const limit = limits.get(make) ?? make(device);
    limits.set(make, limit);
    return limit;
  };
  return {
    best,
    fma: (device) => once(device, fmaLimit),
    copy: (device) => once(device, copyLimit),
    note: (key, rate) => {
      best[key] = Math.max(best[key] ?? 0, rate);
    },
  };
}
