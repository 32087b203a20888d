import { UnsupportedError } from "../errors.ts";
import type { Device, Kernel, Storage } from "./device.ts";

function unmeasured(): void {
  throw new UnsupportedError(
    "[limits] the limits of a machine are those of its kernels: expected a WebAssembly device, got the host's",
  );
}

const fmaKernel: Kernel = { key: "peak.fma.forward", host: unmeasured };
const copyKernel: Kernel = { key: "peak.copy.forward", host: unmeasured };
const readKernel: Kernel = { key: "peak.read.forward", host: unmeasured };

/** Operations of one turn of the arithmetic loop, whatever the tier. */
const operationsPerTurn = 960;
const turns = 400;
/** Floats of one unit of the memory loops. */
const unitFloats = 16_384;

/** A job that does nothing but reach one limit of the machine. */
export interface LimitJob {
  /** Operations, or bytes, of one run; a multiply-add counts two. */
  readonly amount: number;
  run(): void;
  release(): void;
}

/** Multiply-adds from registers alone, by all threads of a device. */
export function fmaLimit(device: Device, units: number): LimitJob {
  const storage = device.allocatePersistent("float32", 32);
  device.write({ storage, offset: 0 }, new Float32Array(32).fill(1e-3));
  const amount = units * turns * operationsPerTurn;
  return jobOf(device, fmaKernel, [storage], [turns], { units, work: amount, amount });
}

/** A copy of so many floats: bytes read and written. */
export function copyLimit(device: Device, floats: number): LimitJob {
  const storages = [0, 1].map(() => device.allocatePersistent("float32", floats));
  return jobOf(device, copyKernel, storages, [], {
    units: Math.ceil(floats / unitFloats),
    work: floats,
    amount: 8 * floats,
  });
}

/** Memory of so many floats, rounded up to whole units, read from end to end: bytes asked for. */
export function readLimit(device: Device, floats: number): LimitJob {
  const units = Math.ceil(floats / unitFloats);
  const storage = device.allocatePersistent("float32", units * unitFloats);
  device.write({ storage, offset: 0 }, new Float32Array(units * unitFloats).fill(1));
  return jobOf(device, readKernel, [storage], [], { units, work: floats, amount: 4 * floats });
}

/**
 * The same reading where the bytes of others lie: whole units of each storage of float32. Noted down where a device can,
 * so that many storages cost little more than one.
 */
export function readLimitOf(device: Device, storages: Iterable<Storage>): LimitJob {
  const parts = [...storages]
    .map((storage) => ({ storage, units: Math.floor(storage.length / unitFloats) }))
    .filter(({ units }) => units > 0);
  const floats = parts.reduce((sum, { units }) => sum + units * unitFloats, 0);
  const run = (): void => {
    for (const { storage, units } of parts) {
      const buffers = [{ storage, offset: 0 }];
      const size = { units, work: units * unitFloats, scratchBytes: 512 };
      device.run({ kernel: readKernel, buffers, ints: [], floats: [], ...size });
    }
    device.settle();
  };
  const recording = device.record?.(run).recording;
  const isRepeatable = recording?.repeatable ?? false;
  return {
    amount: 4 * floats,
    run: isRepeatable ? () => recording!.replay() : run,
    release: () => recording?.dispose(),
  };
}

function jobOf(
  device: Device,
  kernel: Kernel,
  storages: readonly Storage[],
  ints: readonly number[],
  { amount, ...size }: { readonly units: number; readonly work: number; readonly amount: number },
): LimitJob {
  const buffers = storages.map((storage) => ({ storage, offset: 0 }));
  return {
    amount,
    run: () => {
      device.run({ kernel, buffers, ints, floats: [], ...size, scratchBytes: 512 });
      device.settle();
    },
    release: () => {
      for (const storage of storages) device.release(storage);
    },
  };
}
