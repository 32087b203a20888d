import type { Device } from "../src/device/index.ts";
import type { DecoderConfig } from "../src/models/config.ts";
import { demoModel } from "../src/tasks/language-modelling/demo.ts";
import { type Bench, type Context, digits, figure, peerFigure, percent, type Row } from "./bench.ts";
import { type Contender, interleave } from "./measure.ts";
import { openTorch, type TorchPeer, type TorchTraining } from "./peers/torch.ts";
import { trainingStep } from "./training-step.ts";

/** A model in training, and how many tokens a step sees. */
interface Job {
  readonly config: DecoderConfig;
  readonly batch: number;
  readonly time: number;
  /** The same in PyTorch. */
  readonly mixers: TorchTraining["mixers"];
}

function job(kind: string, K: number, V: number): Job {
  const mixer = { kind, heads: 4, K, V, gated: false };
  return {
    config: {
      ...{ vocabularySize: 1024, width: 128, layers: 4, heads: 4, tied: true },
      pattern: [{ id: kind, keyWidth: K, valueWidth: V }],
      positions: { kind: "rotary" },
    },
    ...{ batch: 8, time: 256, mixers: [mixer, mixer, mixer, mixer] },
  };
}

const delta = { kind: "gated-delta", heads: 2, K: 32, V: 64, gated: false };

const presets: Readonly<Record<string, Job>> = {
  demo: {
    ...{ config: demoModel, batch: 4, time: 256 },
    mixers: [delta, delta, delta, { kind: "softmax", heads: 4, K: 32, V: 64, gated: true }],
  },
  "gated-delta": job("gated-delta", 32, 64),
  gla: job("gla", 32, 32),
  linear: job("linear", 32, 32),
  softmax: job("softmax", 32, 32),
};

/** Multiply-adds of a forward pass for one token: every weight once, and what the mixers do beside their projections. */
function forwardWork({ time, mixers }: Job, parameters: number): number {
  const core = mixers.reduce(
    (sum, { kind, heads, K, V }) =>
      sum + heads * (kind === "softmax" ? ((K + V) * (time + 1)) / 2 : 2 * K * V),
    0,
  );
  return parameters + core;
}

/** Steps on one batch. */
function stepOf(
  device: Device,
  { config, ...shape }: Job,
): { contender: Contender; parameters: number; dispose(): void } {
  const training = trainingStep(device, config, shape);
  const batch = training.draw();
  const sample = async (repetitions: number): Promise<number> => {
    const begin = performance.now();
    for (let i = 0; i < repetitions; i++) await training.step(batch);
    await device.settle();
    return (performance.now() - begin) / 1000;
  };
  const { parameters, dispose } = training;
  return { contender: { name: "linnet", sample }, parameters, dispose };
}

async function row(
  context: Context,
  torch: TorchPeer | undefined,
  preset: string,
  threads: number,
): Promise<Row> {
  const device = context.devices.get(threads)!;
  const own = presets[preset]!;
  const { batch: B, time: T, config, mixers } = own;
  const { contender, parameters, dispose } = stepOf(device, own);
  const hidden = 32 * Math.ceil((8 * config.width) / 3 / 32);
  const { width, vocabularySize: vocabulary } = config;
  const peer = await torch?.contender({ name: "train", width, hidden, vocabulary, B, T, mixers }, threads);
  const peak = context.peak.fma(device);
  const all = [peak.contender, contender, ...(peer === undefined ? [] : [peer])];
  const [peakTiming, timing, peerTiming] = await interleave(all, context.measure);
  const tokens = B * T;
  // A multiply-add is two operations; the backward pass does twice as many as the forward pass.
  const flops = 6 * forwardWork(own, parameters) * tokens;
  const floor = (flops * peakTiming!.best) / peak.amount;
  const rate = tokens / timing!.best;
  const theirs = peerTiming && tokens / peerTiming.best;
  dispose();
  return {
    ...{ name: preset, preset, params: parameters, B, T, threads, tokensPerSecond: rate },
    ...{ ms: timing!.best * 1000, share: floor / timing!.best, peakBytes: device.info().bytes.reserved },
    peers: { pytorch: theirs, ratio: theirs && rate / theirs },
  };
}

/** Training of small models, in tokens a second and as a share of the matmul floor. */
export const trainBench: Bench = {
  name: "train",
  about:
    "training steps of the demo's model and of 4-layer models of width 128; --ids demo,gated-delta,gla,linear,softmax, --python PATH",
  columns: [
    figure("preset", "name"),
    figure("weights", "params", 0),
    figure("threads", "threads", 0),
    figure("tokens/s", "tokensPerSecond", 0),
    figure("ms/step", "ms"),
    percent("of floor", "share"),
    peerFigure("torch tok/s", "pytorch"),
    {
      title: "ratio",
      text: (row) => digits((row["peers"] as Record<string, number | undefined>)["ratio"], 2),
    },
    { title: "MB", text: (row) => (Number(row["peakBytes"]) / 1e6).toFixed(0) },
  ],
  async *run(context) {
    const ids = context.options["ids"]?.split(",") ?? Object.keys(presets);
    const torch = openTorch(context.options["python"]);
    try {
      for (const id of ids) yield await row(context, torch, id, Math.max(...context.devices.keys()));
    } finally {
      torch?.close();
    }
  },
};
