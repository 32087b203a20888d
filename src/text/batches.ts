import { ConfigError } from "../errors.ts";
import type { Random } from "../tensor/random.ts";
import type { TokenSource } from "./token-file.ts";

/** One batch of next-token prediction: `inputs` and `targets` are int32 `[B, T]`, row-major. */
export interface TokenBatch {
  readonly inputs: Int32Array;
  readonly targets: Int32Array;
  readonly batch: number;
  readonly time: number;
  /** Rows that run on from batch to batch: whether they begin anew with this one. */
  readonly begins?: boolean;
}

/** How many rows, and how many tokens each. */
export interface BatchShape {
  readonly batch: number;
  readonly time: number;
}

/**
 * The batch of every step: 0, 1, 2, … It depends on nothing but the step, so a run that resumes sees what it would
 * have seen.
 */
export type BatchSource = (step: number) => TokenBatch;

/** Rows that begin at random places of a text. */
export function randomWindows(ids: TokenSource, shape: BatchShape, random: Random): BatchSource {
  const places = checkLength("randomWindows", ids, shape.time);
  return (step) =>
    rowsAt(ids, shape, random.fork(`batch ${step}`).integers(new Int32Array(shape.batch), 0, places));
}

/**
 * Rows that run on: row b of a batch continues row b of the batch before, so that a carried state sees its own past.
 * The text is cut into B equal strips; after the end of the strips every row begins again.
 */
export function runningWindows(
  ids: TokenSource,
  shape: BatchShape,
): BatchSource & { readonly stepsPerPass: number } {
  const strip = Math.floor((ids.length - 1) / shape.batch);
  const stepsPerPass = Math.floor(strip / shape.time);
  if (stepsPerPass < 1) {
    throw new ConfigError(
      `[runningWindows] every row needs ${shape.time} tokens: expected a text of ${shape.batch * shape.time + 1} tokens or more, got ${ids.length}`,
    );
  }
  const source = (step: number): TokenBatch => {
    const from = (step % stepsPerPass) * shape.time;
    const starts = Int32Array.from({ length: shape.batch }, (_, b) => b * strip + from);
    return { ...rowsAt(ids, shape, starts), begins: from === 0 };
  };
  return Object.assign(source, { stepsPerPass });
}

/** Every token predicted once: the text in order, the last batch as many rows as are left. */
export function* evaluationWindows(ids: TokenSource, shape: BatchShape): Generator<TokenBatch> {
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

function rowsAt(ids: TokenSource, { batch, time }: BatchShape, starts: Int32Array): TokenBatch {
  const inputs = new Int32Array(batch * time);
  const targets = new Int32Array(batch * time);
  for (let b = 0; b < batch; b++) {
    const from = starts[b]!;
    inputs.set(ids.subarray(from, from + time), b * time);
    targets.set(ids.subarray(from + 1, from + time + 1), b * time);
  }
  return { inputs, targets, batch, time };
}

function checkLength(who: string, ids: TokenSource, time: number): number {
  if (ids.length <= time) {
    throw new ConfigError(
      `[${who}] the text is shorter than the context: expected more than ${time} tokens, got ${ids.length}`,
      "Give a longer text or a shorter context.",
    );
  }
  return ids.length - time;
}
