import { type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Device } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import type { Decoder } from "../../models/decoder.ts";
import { evaluationWindows, type TokenBatch } from "../../text/batches.ts";
import type { DocumentBatch } from "../../text/document-batches.ts";
import { evaluate, type Task } from "../../train/loop.ts";
import type { CarriedRows } from "./carry.ts";

/** Options of `languageModelling`. */
export interface LanguageModellingOptions {
  /** Layers keep their input alone and compute the rest again in the backward pass. */
  readonly recompute?: boolean;
  /** Rows continue those of the batch before: gradients end at a batch, the state does not. */
  readonly carry?: CarriedRows;
}

/**
 * Next-token prediction with a decoder: the loss is the mean cross-entropy in nats a token.
 *
 * Batches are windows of text, or documents: a row each, or packed so that none sees another.
 */
export function languageModelling(
  model: Decoder,
  device: Device,
  options: LanguageModellingOptions = {},
): Task<DocumentBatch> {
  const { recompute = false, carry } = options;
  if (recompute && carry !== undefined) {
    throw new ConfigError(
      "[language-modelling] a layer that runs twice would move its carried state twice: expected recompute or carry",
    );
  }
  return {
    module: model,
    ...(carry === undefined ? {} : { reset: () => carry.reset() }),
    get carried() {
      return carry?.tensors ?? {};
    },
    size: ({ mask, batch, time }) => mask?.reduce((sum, token) => sum + token, 0) ?? batch * time,
    loss: (batch, { training, random }) => {
      const shape = [batch.batch, batch.time];
      const ids = (values: Int32Array): Tensor => tensor(device, values, shape, { dtype: "int32" });
      const state = training ? carry?.context(batch.batch, batch.begins ?? true) : undefined;
      return model.loss(ids(batch.inputs), ids(batch.targets), {
        ...{ training, random, recompute },
        ...(state === undefined ? {} : { state }),
        ...layoutOf(batch, device),
      });
    },
  };
}

/** Where the documents of a batch lie, if it holds documents. */
function layoutOf(
  { mask, cuSeqlens, batch, time }: DocumentBatch,
  device: Device,
): { readonly mask?: Tensor; readonly cuSeqlens?: Tensor } {
  const ids = (values: Int32Array, shape: readonly number[]): Tensor =>
    tensor(device, values, shape, { dtype: "int32" });
  return {
    ...(mask && { mask: ids(mask, [batch, time]) }),
    ...(cuSeqlens && { cuSeqlens: ids(cuSeqlens, [cuSeqlens.length]) }),
  };
}

/** How well a model predicts a text. */
export interface TextScore {
  readonly nats: number;
  readonly bitsPerByte: number;
  readonly tokens: number;
}

/**
 * Mean cross-entropy over a text, each token predicted once within windows of `time`.
 *
 * @param bytes UTF-8 bytes of the text that the ids stand for: what bits are divided by.
 */
export async function scoreText(
  task: Task<TokenBatch>,
  device: Device,
  ids: Int32Array,
  bytes: number,
  shape: { readonly batch: number; readonly time: number },
): Promise<TextScore> {
  const batches = [...evaluationWindows(ids, shape)];
  const tokens = batches.reduce((sum, batch) => sum + task.size(batch), 0);
  // The windows may leave a few tokens at the end out: bytes are counted in the same share.
  return scoreBatches(task, device, batches, (bytes * tokens) / Math.max(1, ids.length - 1));
}

/**
 * Mean cross-entropy over batches, each of their tokens predicted once.
 *
 * @param bytes UTF-8 bytes of all that is predicted.
 */
export async function scoreBatches(
  task: Task<TokenBatch>,
  device: Device,
  batches: readonly TokenBatch[],
  bytes: number,
): Promise<TextScore> {
  const nats = await evaluate(task, device, batches);
  const tokens = batches.reduce((sum, batch) => sum + task.size(batch), 0);
  return { nats, bitsPerByte: (nats * tokens) / Math.LN2 / bytes, tokens };
}
