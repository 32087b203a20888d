import { ConfigError } from "../errors.ts";
import type { Random } from "../tensor/random.ts";

/** One batch of next-token prediction: `inputs` and `targets` are int32 `[B, T]`, row-major. */
export interface TokenBatch {
  readonly inputs: Int32Array;
  readonly targets: Int32Array;
  readonly batch: number;
  readonly time: number;
}

/** How many rows, and how many tokens each. */
export interface BatchShape {
  readonly batch: number;
  readonly time: number;
}

/** Rows that begin at random places of a text, for ever. What comes depends on `random` alone. */
export function* randomWindows(ids: Int32Array, shape: BatchShape, random: Random): Generator<TokenBatch> {
  const places = checkLength("randomWindows", ids, shape.time);
  for (;;) {
    const starts = random.integers(new Int32Array(shape.batch), 0, places);
    yield rowsAt(ids, shape, starts);
  }
}

/**
 * Rows that run on: row b of a batch continues row b of the batch before, so that a carried state sees its own past.
 * The text is cut into B equal strips; the generator ends where they do.
 */
export function* runningWindows(ids: Int32Array, shape: BatchShape): Generator<TokenBatch> {
  const strip = Math.floor((ids.length - 1) / shape.batch);
  if (strip < shape.time) {
    throw new ConfigError(
      `[runningWindows] every row needs ${shape.time} tokens: expected a text of ${shape.batch * shape.time + 1} tokens or more, got ${ids.length}`,
    );
  }
  for (let from = 0; from + shape.time <= strip; from += shape.time) {
    yield rowsAt(
      ids,
      shape,
      Int32Array.from({ length: shape.batch }, (_, b) => b * strip + from),
    );
  }
}

/** Every token predicted once: the text in order, the last batch as many rows as are left. */
export function* evaluationWindows(ids: Int32Array, shape: BatchShape): Generator<TokenBatch> {
  checkLength("evaluationWindows", ids, shape.time);
  const rows = Math.floor((ids.length - 1) / shape.time);
  for (let row = 0; row < rows; row += shape.batch) {
    const batch = Math.min(shape.batch, rows - row);
    yield rowsAt(
      ids,
      { batch, time: shape.time },
      Int32Array.from({ length: batch }, (_, b) => (row + b) * shape.time),
    );
  }
}

function rowsAt(ids: Int32Array, { batch, time }: BatchShape, starts: Int32Array): TokenBatch {
  const inputs = new Int32Array(batch * time);
  const targets = new Int32Array(batch * time);
  for (let b = 0; b < batch; b++) {
    const from = starts[b]!;
    inputs.set(ids.subarray(from, from + time), b * time);
    targets.set(ids.subarray(from + 1, from + time + 1), b * time);
  }
  return { inputs, targets, batch, time };
}

function checkLength(who: string, ids: Int32Array, time: number): number {
  if (ids.length <= time) {
    throw new ConfigError(
      `[${who}] the text is shorter than the context: expected more than ${time} tokens, got ${ids.length}`,
      "Give a longer text or a shorter context.",
    );
  }
  return ids.length - time;
}
