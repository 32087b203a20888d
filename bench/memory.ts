import type { Device } from "../src/device/index.ts";
import { garbageCollector } from "../tests/garbage-collector.ts";
import { type Bench, figure, type Row } from "./bench.ts";
import { trainingStep } from "./training-step.ts";

const batch = 2;
const time = 32;
const steps = 1000;
/** After so many steps everything that lives on has been made: optimizer state, idle runs, workspace. */
const settled = 10;

const usual = ["linear", "gla", "gated-delta", "softmax"];

/** Bytes of a device and of JavaScript at one moment. */
function bytesNow(
  device: Device,
  collect: () => void,
): { device: number; peak: number; reserved: number; heap: number } {
  collect();
  const { persistent, scoped, peak, reserved } = device.info().bytes;
  return { device: persistent + scoped, peak, reserved, heap: process.memoryUsage().heapUsed };
}

async function trainingRow(id: string, device: Device, collect: () => void): Promise<Row> {
  const before = bytesNow(device, collect);
  const config = {
    ...{ vocabularySize: 64, width: 32, layers: 2, heads: 2, pattern: [id], tied: true },
    mixer: { keyWidth: 16, valueWidth: 16 },
  };
  const { draw, step, dispose } = trainingStep(device, config, { batch, time });
  for (let i = 0; i < settled; i++) await step(draw());
  const early = bytesNow(device, collect);
  const takesEarly = device.info().allocations;
  for (let i = settled; i < steps; i++) await step(draw());
  const late = bytesNow(device, collect);
  const takes = device.info().allocations - takesEarly;
  dispose();
  const after = bytesNow(device, collect);
  return {
    ...{ name: id, id, steps, before: before.device, atStep10: early.device, atEnd: late.device },
    ...{ after: after.device, peakAtStep10: early.peak, peak: late.peak, reserved: late.reserved },
    ...{ growth: late.peak - early.peak + late.device - early.device, takes },
    ...{ heapAtStep10: early.heap, heapAtEnd: late.heap },
  };
}

const kilobytes = (title: string, key: string) => ({
  title,
  text: (row: Row) => (Number(row[key]) / 1e3).toFixed(0),
});

/** Bytes of a device before, during and after many training steps of a small network. */
export const memoryBench: Bench = {
  name: "memory",
  about: "bytes before, at the fullest moment of and after 1,000 training steps; growth after step 10; --ids",
  columns: [
    figure("id", "name"),
    kilobytes("kB before", "before"),
    kilobytes("at step 10", "atStep10"),
    kilobytes("at the end", "atEnd"),
    kilobytes("peak", "peak"),
    figure("growth", "growth", 0),
    figure("takes", "takes", 0),
    kilobytes("kB after", "after"),
    kilobytes("JS heap, kB", "heapAtEnd"),
  ],
  async *run(context) {
    const collect = await garbageCollector();
    for (const id of context.options["ids"]?.split(",") ?? usual) {
      const device = await context.open(Math.max(...context.devices.keys()));
      try {
        yield await trainingRow(id, device, collect);
      } finally {
        device.close();
      }
    }
  },
};
