/** The forms of mechanisms in which every token sees every other. */
import { full, type Tensor, type Tensors } from "../../autograd/tensor.ts";
import { ConfigError, UnsupportedError } from "../../errors.ts";
import { concat } from "../../ops/concat/index.ts";
import { slice } from "../../ops/split/index.ts";
import { checkInputs, type InputRules } from "../inputs.ts";
import type { LayerContext } from "../layer.ts";
import {
  type Absent,
  absent,
  type Form,
  type FormName,
  type FormOptions,
  type Traits,
} from "../mechanism.ts";
import { type Packing, pack, packingOf, unpack } from "../recurrence/packing.ts";
import { attention } from "./attention-op.ts";
import { attentionByMatrix } from "./matrix-op.ts";
import { type AttentionInputs, type AttentionOptions, checkMask } from "./operands.ts";

/** Exact attention in tiles or by its matrix: what such a mechanism is made of. */
export type Attend = (inputs: AttentionInputs, options: AttentionOptions) => Tensor;

/** Queries, keys and values of whole rows, `[B,T,H,·]`. */
export interface FullInputs {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
}

/** Attention of rows without padding → `[B,T,H,V]`. */
export type AttendRows = (rows: FullInputs) => Tensor;

/** The traits that such mechanisms share. */
export const fullTraits = {
  ...{ decay: "none", write: "none", causal: false, full: true },
  prefixExact: "Every token sees all of the sequence, so that what follows a prefix changes its outputs.",
  ...{ constantState: false, linearInValue: true, unitKeys: false },
  ...{ correctionReadsDecayed: false, readsBeforeWrite: false },
} as const satisfies Omit<Traits, "normalized">;

/** A mechanism as its forms need to know it. */
export interface FullDeclaration<Options extends FormOptions> {
  readonly id: string;
  readonly inputs: InputRules;
  /** Why it is not causal, and what is. */
  readonly why: { readonly reason: string; readonly instead: string };
  /** Throws for options that make no sense with the inputs. */
  check(who: string, inputs: Tensors, options: Options): void;
  compute(rows: FullInputs, inputs: Tensors, options: Options, attend: Attend): Tensor;
}

/**
 * `chunkwise` with exact attention in tiles inside, `parallel` by its matrices; no state, so neither `recurrent` nor `step`.
 *
 * Beside the inputs of its contract each form takes `mask [B,T]` (int32 or uint8) over the tokens of the keys: where it is
 * 0 they are taken out, and with them the outputs where there are as many queries as keys.
 */
export function fullForms<Options extends FormOptions>(
  declaration: FullDeclaration<Options>,
): Readonly<Record<FormName, Form | Absent>> {
  return {
    recurrent: absent("Every token sees every other; there is no state to carry."),
    step: absent("A new token changes the outputs of all before it; sequences are computed whole."),
    chunkwise: formOf(declaration, "chunkwise", (inputs, options) => attention(inputs, options).output),
    parallel: formOf(declaration, "parallel", (inputs, options) => attentionByMatrix(inputs, options).output),
  };
}

/** Throws an UnsupportedError that says why a mechanism is not causal and what is. */
export function refuseCausal(who: string, { reason, instead }: FullDeclaration<FormOptions>["why"]): never {
  throw new UnsupportedError(
    `[${who}] is not causal: expected causal: false, got true, but ${reason}`,
    instead,
  );
}

/** Throws an UnsupportedError where tokens of a memory are padding: its length is part of such a mechanism. */
export function refuseMemoryMask(who: string, { memory, memoryMask }: LayerContext): void {
  if (memory === undefined || memoryMask === undefined) return;
  throw new UnsupportedError(
    `[${who}] a memory is taken whole: expected no memoryMask, got one`,
    "Read memories with padding by softmax or linear attention.",
  );
}

function formOf<Options extends FormOptions>(
  declaration: FullDeclaration<Options>,
  name: FormName,
  attend: Attend,
): Form {
  const { id, inputs: rules, why } = declaration;
  const who = `${id}.${name}`;
  return ({ mask, ...given }, options = {}) => {
    const own = options as Options;
    const { cuSeqlens, causal = false } = own;
    if (causal) refuseCausal(who, why);
    checkInputs(who, rules, given, { causal: false, cuSeqlens });
    checkMask(who, mask);
    if (mask !== undefined && cuSeqlens !== undefined) {
      throw new ConfigError(
        `[${who}] mask and cuSeqlens both say where sequences lie: expected one of them, got both`,
      );
    }
    declaration.check(who, given, own);
    const rows = { q: given["q"]!, k: given["k"]!, v: given["v"]! };
    const compute: AttendRows = (part) => declaration.compute(part, given, own, attend);
    if (cuSeqlens !== undefined) return { output: attendPacked(rows, [...cuSeqlens.dataSync()], compute) };
    const [B, T] = rows.k.shape as [number, number];
    const packing = mask && packingOf(who, mask, B, T);
    return { output: packing === undefined ? compute(rows) : attendPadded(rows, packing, compute) };
  };
}

/** Sequences packed in one row `[1,n,H,·]`, each on its own. */
export function attendPacked(rows: FullInputs, bounds: readonly number[], compute: AttendRows): Tensor {
  const outputs: Tensor[] = [];
  for (const [n, begin] of bounds.slice(0, -1).entries()) {
    const end = bounds[n + 1]!;
    const cut = (x: Tensor): Tensor => slice(x, 1, begin, end);
    if (end > begin) outputs.push(compute({ q: cut(rows.q), k: cut(rows.k), v: cut(rows.v) }));
  }
  return outputs.length === 0 ? nothing(rows) : concat(outputs, 1);
}

/** Zeros for queries that see nothing. */
function nothing({ q, v }: FullInputs): Tensor {
  return full(q.device, [...q.shape.slice(0, 3), v.shape[3]!], 0, { dtype: q.dtype });
}

function attendPadded({ q, k, v }: FullInputs, packing: Packing, compute: AttendRows): Tensor {
  const keys = { k: pack(k, packing), v: pack(v, packing) };
  const { bounds, batch, time } = packing;
  if (q.shape[1] === time) {
    return unpack(attendPacked({ q: pack(q, packing), ...keys }, bounds, compute), packing);
  }
  const outputs = Array.from({ length: batch }, (_, b) => {
    const cut = (x: Tensor): Tensor => slice(x, 1, bounds[b]!, bounds[b + 1]!);
    const row = { q: slice(q, 0, b, b + 1), k: cut(keys.k), v: cut(keys.v) };
    return row.k.shape[1] === 0 ? nothing(row) : compute(row);
  });
  return concat(outputs, 0);
}
