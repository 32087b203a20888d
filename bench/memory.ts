import { scope } from "../src/autograd/scope.ts";
import { backward } from "../src/autograd/tape.ts";
import type { Device } from "../src/device/index.ts";
import { Decoder } from "../src/models/decoder.ts";
import { initialize } from "../src/nn/module.ts";
import { languageModelling } from "../src/tasks/language-modelling/index.ts";
import { Random } from "../src/tensor/random.ts";
import { adamW } from "../src/train/optimizers/adam.ts";
import { Optimizer } from "../src/train/optimizers/optimizer.ts";
import { garbageCollector } from "../tests/garbage-collector.ts";
import { type Bench, figure, type Row } from "./bench.ts";

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
  const model = new Decoder({
    ...{ vocabularySize: 64, width: 32, layers: 2, heads: 2, pattern: [id], tied: true },
    mixer: { keyWidth: 16, valueWidth: 16 },
  });
  initialize(model, device, new Random(1));
  const task = languageModelling(model, device);
  const optimizer = new Optimizer(adamW(), model.namedParameters(), { learningRate: 1e-3, clip: 1 });
  const random = new Random(5);
  const step = async (): Promise<void> => {
    const draw = (): Int32Array => random.integers(new Int32Array(batch * time), 0, 64);
    const loss = scope(device, () => {
      const value = task.loss({ batch, time, inputs: draw(), targets: draw() }, { training: true, random });
      backward(value);
      return value.detach();
    });
    await optimizer.step();
    optimizer.clearGradients();
    loss.dispose();
  };
  for (let i = 0; i < settled; i++) await step();
  const early = bytesNow(device, collect);
  const takesEarly = device.info().allocations;
  for (let i = settled; i < steps; i++) await step();
  const late = bytesNow(device, collect);
  const takes = device.info().allocations - takesEarly;
  optimizer.dispose();
  model.dispose();
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
