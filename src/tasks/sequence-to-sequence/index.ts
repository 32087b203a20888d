import { scope } from "../../autograd/scope.ts";
import { noGrad } from "../../autograd/tape.ts";
import { type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Device } from "../../device/device.ts";
import type { SequenceToSequence } from "../../models/sequence-to-sequence.ts";
import type { Task } from "../../train/loop.ts";
import { type SequenceScore, Tally } from "../comparison/score.ts";

/** A source and what it becomes, as ids. */
export interface IdPair {
  readonly source: ArrayLike<number>;
  readonly target: ArrayLike<number>;
}

/** Pairs side by side, padding behind the shorter ones. */
export interface PairBatch {
  /** `[B, Ts]`, and 1 for its tokens and 0 for its padding. */
  readonly source: Int32Array;
  readonly sourceMask: Int32Array;
  readonly sourceTime: number;
  /** `[B, T]`: the begin id and the target; the target and the end id, −100 behind it. */
  readonly inputs: Int32Array;
  readonly targets: Int32Array;
  readonly time: number;
  readonly batch: number;
}

/** Ids that frame a target. */
export interface Frame {
  readonly begin: number;
  readonly end: number;
}

const unasked = -100;

/** A batch of pairs. */
export function pairBatch(pairs: readonly IdPair[], { begin, end }: Frame): PairBatch {
  const batch = pairs.length;
  const sourceTime = pairs.reduce((most, { source }) => Math.max(most, source.length), 1);
  const time = pairs.reduce((most, { target }) => Math.max(most, target.length + 1), 1);
  const [source, sourceMask] = [new Int32Array(batch * sourceTime), new Int32Array(batch * sourceTime)];
  const [inputs, targets] = [
    new Int32Array(batch * time).fill(end),
    new Int32Array(batch * time).fill(unasked),
  ];
  for (const [b, pair] of pairs.entries()) {
    source.set(Array.from(pair.source), b * sourceTime);
    sourceMask.fill(1, b * sourceTime, b * sourceTime + pair.source.length);
    inputs.set([begin, ...Array.from(pair.target)], b * time);
    targets.set([...Array.from(pair.target), end], b * time);
  }
  return { source, sourceMask, sourceTime, inputs, targets, time, batch };
}

/**
 * Pairs of sequences with an encoder and a decoder: the loss is the mean cross-entropy in nats a token of the target, its
 * end included.
 *
 * Padding behind a target needs no mask: the decoder is causal, and nothing is asked there.
 */
export function sequenceToSequence(model: SequenceToSequence, device: Device): Task<PairBatch> {
  return {
    module: model,
    size: ({ targets }) => targets.reduce((count, target) => count + (target === unasked ? 0 : 1), 0),
    loss: (batch, { training, random }) => {
      const { source, inputs, targets, sourceMask } = tensorsOf(batch, device);
      return model.loss(source, inputs, targets, { sourceMask, training, random });
    },
  };
}

/** How well a model continues the targets of pairs: nats a token, and the share of tokens that is most likely. */
export async function scorePairs(
  model: SequenceToSequence,
  device: Device,
  batches: readonly PairBatch[],
): Promise<SequenceScore> {
  const tally = new Tally();
  for (const batch of batches) {
    const logits = scope(device, () => {
      const { source, inputs, sourceMask } = tensorsOf(batch, device);
      return noGrad(() => model.forward(source, inputs, { sourceMask }).logits);
    });
    tally.add(await logits.data(), model.decoder.config.vocabularySize, batch.targets);
    logits.dispose();
  }
  return tally.score;
}

function tensorsOf(
  { source, sourceMask, sourceTime, inputs, targets, time, batch }: PairBatch,
  device: Device,
): Record<"source" | "sourceMask" | "inputs" | "targets", Tensor> {
  const ids = (values: Int32Array, width: number): Tensor =>
    tensor(device, values, [batch, width], { dtype: "int32" });
  return {
    ...{ source: ids(source, sourceTime), sourceMask: ids(sourceMask, sourceTime) },
    ...{ inputs: ids(inputs, time), targets: ids(targets, time) },
  };
}
