import { scope } from "../../autograd/scope.ts";
import { noGrad } from "../../autograd/tape.ts";
import { type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Device } from "../../device/device.ts";
import type { Decoder } from "../../models/decoder.ts";
import type { MaskedModel } from "../../models/masked-model.ts";
import type { Random } from "../../tensor/random.ts";
import type { Task } from "../../train/loop.ts";
import { type SequenceScore, Tally } from "./score.ts";

/** A model of token ids that is asked for the ids of places. */
export type SequenceModel = Decoder | MaskedModel;

/** Rows of token ids with the ids wanted after each; −100 where nothing is asked. */
export interface SequenceBatch {
  readonly inputs: Int32Array;
  readonly targets: Int32Array;
  readonly batch: number;
  readonly time: number;
}

/** Makes one row: fills `inputs` and `targets`, both as long as the sequence. */
export type SequenceMaker = (inputs: Int32Array, targets: Int32Array, random: Random) => void;

/** What is not asked. */
export const unasked = -100;

/** A batch of rows drawn from `random`. */
export function makeSequences(
  maker: SequenceMaker,
  batch: number,
  time: number,
  random: Random,
): SequenceBatch {
  const inputs = new Int32Array(batch * time);
  const targets = new Int32Array(batch * time).fill(unasked);
  for (let row = 0; row < batch; row++) {
    maker(
      inputs.subarray(row * time, (row + 1) * time),
      targets.subarray(row * time, (row + 1) * time),
      random,
    );
  }
  return { inputs, targets, batch, time };
}

/** The training task of a model on such rows. */
export function sequenceTask(model: SequenceModel, device: Device): Task<SequenceBatch> {
  return {
    module: model,
    size: (batch) => batch.batch * batch.time,
    loss: ({ inputs, targets, batch, time }, { training, random }) => {
      const ids = (values: Int32Array): Tensor => tensor(device, values, [batch, time], { dtype: "int32" });
      return model.loss(ids(inputs), ids(targets), { training, random });
    },
  };
}

/** Scores a model on batches. */
export async function scoreSequences(
  model: SequenceModel,
  device: Device,
  batches: readonly SequenceBatch[],
): Promise<SequenceScore> {
  const tally = new Tally();
  for (const { inputs, targets, batch, time } of batches) {
    const logits = scope(device, () =>
      noGrad(() => model.forward(tensor(device, inputs, [batch, time], { dtype: "int32" })).logits),
    );
    tally.add(await logits.data(), model.config.vocabularySize, targets);
    logits.dispose();
  }
  return tally.score;
}
