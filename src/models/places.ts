import { type Tensor, tensor } from "../autograd/tensor.ts";
import { ConfigError, ShapeError } from "../errors.ts";
import { packingOf } from "../mechanisms/recurrence/packing.ts";

/** What says where sequences lie in a batch: padding anywhere in its rows, or sequences packed in one row. */
export interface Layout {
  /** int32 [B, T], 1 for tokens and 0 for padding. */
  readonly mask?: Tensor | undefined;
  /** int32 [N+1], B = 1. */
  readonly cuSeqlens?: Tensor | undefined;
}

/** Where the tokens of a call stand. */
export interface Places {
  /** Position of every token in its sequence, `[B·T]`; padding counts for nothing. */
  readonly positions: Int32Array;
  /** Tokens of every sequence. */
  readonly counts: readonly number[];
  /** Row b·T + t of the last token of every sequence; 0 for one without tokens. */
  readonly last: readonly number[];
}

/**
 * Places of tokens `[B, T]`.
 *
 * @param seen Tokens that every sequence had before; none unless given.
 * @throws ShapeError where mask or cuSeqlens do not fit the tokens; ConfigError where both are given.
 */
export function placesOf(who: string, tokens: Tensor, layout: Layout, seen: readonly number[] = []): Places {
  const [batch, time] = tokens.shape as [number, number];
  if (tokens.rank !== 2)
    throw new ShapeError(`[${who}] tokens: expected [B, T], got [${tokens.shape.join(", ")}]`);
  const { mask, cuSeqlens } = layout;
  if (mask !== undefined && cuSeqlens !== undefined) {
    throw new ConfigError(
      `[${who}] mask and cuSeqlens both say where sequences lie: expected one of them, got both`,
    );
  }
  if (cuSeqlens !== undefined && batch !== 1)
    throw new ShapeError(`[${who}] packed sequences lie in one row: expected B = 1, got ${batch}`);
  const bounds = cuSeqlens && [...cuSeqlens.dataSync()];
  const hidden = mask && packingOf(who, mask, batch, time) && mask.dataSync();
  const positions = new Int32Array(batch * time);
  const sequences = bounds ? bounds.length - 1 : batch;
  const counts: number[] = [];
  const last: number[] = [];
  for (let n = 0; n < sequences; n++) {
    const [from, to] = bounds ? [bounds[n]!, bounds[n + 1]!] : [n * time, (n + 1) * time];
    let count = 0;
    let end = 0;
    for (let row = from; row < to; row++) {
      if (hidden?.[row] === 0) continue;
      positions[row] = (seen[n] ?? 0) + count++;
      end = row;
    }
    counts.push(count);
    last.push(end);
  }
  return { positions, counts, last };
}

/** Numbers as an int32 tensor `[n]`. */
export function integers(like: Tensor, values: readonly number[] | Int32Array): Tensor {
  return tensor(like.device, values, [values.length], { dtype: "int32" });
}
