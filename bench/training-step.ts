import { scope } from "../src/autograd/scope.ts";
import { backward } from "../src/autograd/tape.ts";
import type { Device } from "../src/device/index.ts";
import type { DecoderConfig } from "../src/models/config.ts";
import { Decoder } from "../src/models/decoder.ts";
import { initialize } from "../src/nn/module.ts";
import { languageModelling } from "../src/tasks/language-modelling/index.ts";
import { Random } from "../src/tensor/random.ts";
import type { TokenBatch } from "../src/text/batches.ts";
import { adamW } from "../src/train/optimizers/adam.ts";
import { Optimizer } from "../src/train/optimizers/optimizer.ts";

/** A model on a device with all that a step of training needs. */
export interface TrainingStep {
  readonly parameters: number;
  /** A batch of random tokens. */
  draw(): TokenBatch;
  /** Forward, backward, clipping and AdamW. */
  step(batch: TokenBatch): Promise<void>;
  dispose(): void;
}

/** Sets a model up for training on random tokens. */
export function trainingStep(
  device: Device,
  config: DecoderConfig,
  { batch, time }: { readonly batch: number; readonly time: number },
): TrainingStep {
  const model = new Decoder(config);
  initialize(model, device, new Random(1));
  const task = languageModelling(model, device);
  const optimizer = new Optimizer(adamW(), model.namedParameters(), { learningRate: 1e-3, clip: 1 });
  const random = new Random(5);
  const tokens = (): Int32Array => random.integers(new Int32Array(batch * time), 0, config.vocabularySize);
  return {
    parameters: model.parameterCount,
    draw: () => ({ batch, time, inputs: tokens(), targets: tokens() }),
    step: async (drawn) => {
      const loss = scope(device, () => {
        const value = task.loss(drawn, { training: true, random });
        backward(value);
        return value.detach();
      });
      await optimizer.step();
      optimizer.clearGradients();
      loss.dispose();
    },
    dispose: () => {
      optimizer.dispose();
      model.dispose();
    },
  };
}
