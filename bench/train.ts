import { scope } from "../src/autograd/scope.ts";
import { backward } from "../src/autograd/tape.ts";
import type { Device } from "../src/device/index.ts";
import type { DecoderConfig, MixerChoice } from "../src/models/config.ts";
import { Decoder } from "../src/models/decoder.ts";
import { initialize } from "../src/nn/module.ts";
import { languageModelling } from "../src/tasks/language-modelling/index.ts";
import { Random } from "../src/tensor/random.ts";
import type { TokenBatch } from "../src/text/batches.ts";
import { adamW } from "../src/train/optimizers/adam.ts";
import { Optimizer } from "../src/train/optimizers/optimizer.ts";
import { type Bench, type Context, figure, percent, type Row } from "./bench.ts";
import { type Contender, interleave } from "./measure.ts";

const shape = { batch: 8, time: 256 };

const presets: Readonly<Record<string, MixerChoice>> = {
  "gated-delta": { id: "gated-delta", keyWidth: 32, valueWidth: 64 },
  gla: { id: "gla", keyWidth: 32, valueWidth: 32 },
  linear: { id: "linear", keyWidth: 32, valueWidth: 32 },
  softmax: { id: "softmax", keyWidth: 32, valueWidth: 32 },
};

function modelOf(mixer: MixerChoice): DecoderConfig {
  return {
    ...{ vocabularySize: 1024, width: 128, layers: 4, heads: 4, pattern: [mixer], tied: true },
    positions: { kind: "rotary" },
  };
}

/** One training step: forward, backward, clipping and AdamW. */
function stepOf(
  device: Device,
  config: DecoderConfig,
): { contender: Contender; parameters: number; dispose(): void } {
  const model = new Decoder(config);
  initialize(model, device, new Random(1));
  const task = languageModelling(model, device);
  const optimizer = new Optimizer(adamW(), model.namedParameters(), { learningRate: 1e-3, clip: 1 });
  const random = new Random(5);
  const draw = (): Int32Array =>
    random.integers(new Int32Array(shape.batch * shape.time), 0, config.vocabularySize);
  const batch: TokenBatch = { ...shape, inputs: draw(), targets: draw() };
  const step = async (): Promise<void> => {
    const loss = scope(device, () => {
      const value = task.loss(batch, { training: true, random });
      backward(value);
      return value.detach();
    });
    await optimizer.step();
    optimizer.clearGradients();
    loss.dispose();
  };
  const sample = async (repetitions: number): Promise<number> => {
    const begin = performance.now();
    for (let i = 0; i < repetitions; i++) await step();
    return (performance.now() - begin) / 1000;
  };
  const dispose = (): void => {
    optimizer.dispose();
    model.dispose();
  };
  return { contender: { name: "linnet", sample }, parameters: model.parameterCount, dispose };
}

async function row(context: Context, preset: string, threads: number): Promise<Row> {
  const device = context.devices.get(threads)!;
  const config = modelOf(presets[preset]!);
  const { contender, parameters, dispose } = stepOf(device, config);
  const peak = context.peak.fma(device);
  const [peakTiming, timing] = await interleave([peak.contender, contender], context.measure);
  const tokens = shape.batch * shape.time;
  // Six multiply-adds times two for every weight and token: one forward, two backward.
  const flops = 6 * parameters * tokens;
  const rate = peak.amount / peakTiming!.best;
  const before = device.info().bytes.reserved;
  const result = {
    ...{ name: preset, preset, params: parameters, B: shape.batch, T: shape.time, threads },
    ...{
      tokensPerSecond: tokens / timing!.best,
      ms: timing!.best * 1000,
      share: flops / timing!.best / rate,
    },
    ...{ peakBytes: before, peers: {} },
  };
  dispose();
  return result;
}

/** Training of small models, in tokens a second and as a share of the matmul floor. */
export const trainBench: Bench = {
  name: "train",
  about: "training steps of 4-layer models of width 128 at B 8, T 256; --ids gated-delta,gla,linear,softmax",
  columns: [
    figure("preset", "name"),
    figure("weights", "params", 0),
    figure("threads", "threads", 0),
    figure("tokens/s", "tokensPerSecond", 0),
    figure("ms/step", "ms"),
    percent("of floor", "share"),
    { title: "MB", text: (row) => (Number(row["peakBytes"]) / 1e6).toFixed(0) },
  ],
  async *run(context) {
    const ids = context.options["ids"]?.split(",") ?? Object.keys(presets);
    for (const id of ids) yield await row(context, id, Math.max(...context.devices.keys()));
  },
};
