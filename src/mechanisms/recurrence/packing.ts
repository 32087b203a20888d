/** Padding taken out: the real tokens of a padded batch as sequences packed one after another, and back. */
import { apply, type Op } from "../../autograd/tape.ts";
import { full, type Tensor, tensor } from "../../autograd/tensor.ts";
import { ShapeError } from "../../errors.ts";
import { packed } from "../../ops/contiguous/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { putSlots, takeSlots } from "./slab.ts";

/** Where the real tokens of a batch lie. */
export interface Packing {
  readonly batch: number;
  readonly time: number;
  /** int32 `[n]`: row b·T + t of every real token, in order. */
  readonly rows: Tensor;
  /** int32 `[B+1]`. */
  readonly cuSeqlens: Tensor;
  /** The same numbers. */
  readonly bounds: readonly number[];
}

const known = new WeakMap<Tensor, { readonly packing: Packing | undefined }>();

/**
 * The packing that a mask `[B, T]` int32 stands for, 1 for tokens and 0 for padding anywhere in a row; undefined where
 * nothing is padded. Reads the mask once, whatever the number of layers that ask.
 *
 * @throws ShapeError where the mask does not have the batch and time of what it masks.
 */
export function packingOf(who: string, mask: Tensor, batch: number, time: number): Packing | undefined {
  if (mask.rank !== 2 || mask.shape[0] !== batch || mask.shape[1] !== time) {
    throw new ShapeError(
      `[${who}] mask says which tokens are real: expected [B=${batch}, T=${time}], got [${mask.shape.join(", ")}]`,
    );
  }
  const found = known.get(mask);
  if (found !== undefined && (found.packing?.rows.layout.storage.alive ?? true)) return found.packing;
  const packing = readPacking(mask, batch, time);
  known.set(mask, { packing });
  return packing;
}

function readPacking(mask: Tensor, batch: number, time: number): Packing | undefined {
  const values = mask.dataSync();
  const rows: number[] = [];
  const bounds = [0];
  for (let b = 0; b < batch; b++) {
    for (let t = 0; t < time; t++) if (values[b * time + t] !== 0) rows.push(b * time + t);
    bounds.push(rows.length);
  }
  if (rows.length === batch * time) return undefined;
  const integers = (list: readonly number[]): Tensor =>
    tensor(mask.device, list, [list.length], { dtype: "int32" });
  return { batch, time, rows: integers(rows), cuSeqlens: integers(bounds), bounds };
}

const packOp: Op<{ x: Tensor; rows: Tensor }, undefined, { y: Tensor }> = {
  name: "pack",
  forward: ({ x, rows }) => ({ outputs: { y: takeSlots(x, rows) }, saved: undefined }),
  backward: ({ inputs: { x, rows }, grads: { y } }) => ({ x: y && spread(y, rows, x.shape[0]!) }),
};

const unpackOp: Op<{ x: Tensor; rows: Tensor }, number, { y: Tensor }> = {
  name: "unpack",
  forward: ({ x, rows }, count) => ({ outputs: { y: spread(x, rows, count) }, saved: undefined }),
  backward: ({ inputs: { rows }, grads: { y } }) => ({ x: y && takeSlots(packed(y), rows) }),
};

/** Rows at their places in a table of `count`, zeros elsewhere. */
function spread(x: Tensor, rows: Tensor, count: number): Tensor {
  const table = full(x.device, [count, ...x.shape.slice(1)], 0, { dtype: x.dtype });
  putSlots(table, rows, x);
  return table;
}

/** `x [B, T, ...]` → the real tokens `[1, n, ...]`. */
export function pack(x: Tensor, { rows, batch, time }: Packing): Tensor {
  const inner = x.shape.slice(2);
  const { y } = apply(packOp, { x: reshape(x, [batch * time, ...inner]), rows }, undefined);
  return reshape(y, [1, rows.size, ...inner]);
}

/** `x [1, n, ...]` → `[B, T, ...]`, zeros where there is padding. */
export function unpack(x: Tensor, { rows, batch, time }: Packing): Tensor {
  const inner = x.shape.slice(2);
  const { y } = apply(unpackOp, { x: reshape(x, [rows.size, ...inner]), rows }, batch * time);
  return reshape(y, [batch, time, ...inner]);
}
