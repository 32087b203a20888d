import { copyInto } from "../../autograd/move.ts";
import { isRecording } from "../../autograd/tape.ts";
import { empty, type Tensor, tensor } from "../../autograd/tensor.ts";
import { ConfigError, UnsupportedError } from "../../errors.ts";
import { concat } from "../../ops/concat/index.ts";
import { part } from "../../ops/split/index.ts";
import { attention } from "../attention/attention-op.ts";
import { attentionOverCache, writeCache } from "../attention/cache.ts";
import { attentionByMatrix } from "../attention/matrix-op.ts";
import type { AttentionInputs, AttentionOptions } from "../attention/operands.ts";
import { checkInputs } from "../inputs.ts";
import { type Absent, absent, type FormName, type FormOptions, type InputRule } from "../mechanism.ts";
import { pack, packingOf, unpack } from "../recurrence/packing.ts";

const same = (normal: number): number => normal;

/** Inputs of softmax attention. */
export const inputs: Readonly<Record<string, InputRule>> = {
  q: { axes: "B T HQ K", domain: "any", sample: same },
  k: { axes: "B T HKV K", domain: "any", sample: same },
  v: { axes: "B T HKV V", domain: "any", sample: same },
  initialKeys: { axes: "B past HKV K", domain: "any", optional: true, sample: same },
  initialValues: { axes: "B past HKV V", domain: "any", optional: true, sample: same },
};

/** How a form of softmax is called beyond its inputs. */
export interface SoftmaxFormOptions extends FormOptions {
  /** A causal query sees its own position and the window − 1 before it; everything unless given. */
  readonly window?: number;
}

/** Inputs of softmax by symbol; `mask` and `bias` beside those of the contract. */
export type SoftmaxInputs = Readonly<Record<string, Tensor | undefined>>;

/** A form of softmax. */
export type SoftmaxForm = (
  inputs: SoftmaxInputs,
  options?: SoftmaxFormOptions,
) => Readonly<Record<string, Tensor | undefined>>;

type Compute = (inputs: AttentionInputs, options: AttentionOptions) => Tensor;

/**
 * The forms of softmax: `chunkwise` in tiles, `parallel` through the T×Tk matrix, `step` over a cache.
 *
 * Beside the inputs of its contract every form takes `mask [B,T]` (int32 or uint8) over the tokens of k: where it is 0 a
 * key is seen by nobody, and in causal calls without a bias the token's own output is zeros. `bias [B or 1, HQ or 1, T, Tk]` is added to
 * the scaled scores by `chunkwise` and `parallel`. `initialKeys` and `initialValues` lie before the tokens of a causal
 * call; `finalKeys` and `finalValues` are those and the call's own, absent where a mask or packing makes rows uneven.
 */
export const forms: Readonly<Record<FormName, SoftmaxForm | Absent>> = {
  recurrent: absent("Its state is all it has seen; step walks token by token over a cache."),
  step: formOf("step", (given, options) => stepThrough(given, options)),
  chunkwise: formOf("chunkwise", (given, options) => attention(given, options).output),
  parallel: formOf("parallel", (given, options) => attentionByMatrix(given, options).output),
};

function formOf(name: FormName, compute: Compute): SoftmaxForm {
  const who = `softmax.${name}`;
  return ({ mask, bias, ...own }, options = {}) => {
    const { causal = true, cuSeqlens, window, scale } = options;
    checkInputs(who, inputs, own, { causal, cuSeqlens });
    const { q, k, v, initialKeys, initialValues } = own as Record<string, Tensor> &
      Record<"q" | "k" | "v", Tensor>;
    checkCall(who, name, { ...own, mask, bias }, causal, cuSeqlens);
    const call = { causal, window, scale };
    if (mask !== undefined && causal && bias === undefined) {
      const [B, T] = k.shape as [number, number];
      const packing = packingOf(who, mask, B, T);
      if (packing !== undefined) {
        const real = { q: pack(q, packing), k: pack(k, packing), v: pack(v, packing) };
        return { output: unpack(compute({ ...real, cuSeqlens: packing.cuSeqlens }, call), packing) };
      }
    }
    const finalKeys = initialKeys === undefined ? k : concat([initialKeys, k], 1);
    const finalValues = initialValues === undefined ? v : concat([initialValues, v], 1);
    const output = compute({ q, k: finalKeys, v: finalValues, mask, bias, cuSeqlens }, call);
    return mask === undefined && cuSeqlens === undefined && causal
      ? { output, finalKeys, finalValues }
      : { output };
  };
}

function checkCall(
  who: string,
  name: FormName,
  given: SoftmaxInputs,
  causal: boolean,
  cuSeqlens: Tensor | undefined,
): void {
  const { mask, bias, initialKeys, initialValues } = given;
  const hasPast = initialKeys !== undefined || initialValues !== undefined;
  if (mask !== undefined && cuSeqlens !== undefined) {
    throw new ConfigError(
      `[${who}] mask and cuSeqlens both say where sequences lie: expected one of them, got both`,
    );
  }
  if ((initialKeys === undefined) !== (initialValues === undefined)) {
    throw new ConfigError(
      `[${who}] a cache has keys and values: expected initialKeys and initialValues, got one of them`,
    );
  }
  if (hasPast && (mask !== undefined || cuSeqlens !== undefined || !causal)) {
    throw new UnsupportedError(
      `[${who}] initialKeys continue whole causal rows: expected causal: true without mask and cuSeqlens`,
      "Layers carry a state through padded and packed calls.",
    );
  }
  if (name !== "step") return;
  if (!causal) {
    throw new UnsupportedError(
      `[${who}] has no causal: false: expected causal, got false, but a single step sees what came before`,
      "Use another form.",
    );
  }
  if (bias !== undefined) {
    throw new UnsupportedError(
      `[${who}] steps have no bias: expected none, got one`,
      "Use the chunkwise form.",
    );
  }
  const wanting = Object.entries(given).find(([, input]) => input?.requiresGrad);
  if (wanting !== undefined && isRecording()) {
    throw new UnsupportedError(
      `[${who}] single steps have no gradients: expected inputs without them, got ${wanting[0]} that requires one`,
      "Train with the chunkwise form, or wrap the call in noGrad.",
    );
  }
}

/** Token by token over caches that are filled as it goes: a row, or a packed sequence, each its own slot. */
function stepThrough({ q, k, v, cuSeqlens }: AttentionInputs, options: AttentionOptions): Tensor {
  const T = q.shape[1]!;
  const output = empty(q.device, [...q.shape.slice(0, 3), v.shape[3]!], { dtype: q.dtype });
  const bounds = cuSeqlens === undefined ? [0, T] : [...cuSeqlens.dataSync()];
  const past = k.shape[1]! - T;
  for (const [n, begin] of bounds.slice(0, -1).entries()) {
    const length = bounds[n + 1]! - begin;
    walk(
      {
        q: part(q, 1, begin, length),
        k: part(k, 1, begin, past + length),
        v: part(v, 1, begin, past + length),
      },
      part(output, 1, begin, length),
      options,
    );
  }
  return output;
}

/** The last T tokens of k and v, one after another behind those before them. */
function walk({ q, k, v }: AttentionInputs, output: Tensor, options: AttentionOptions): void {
  const { device } = q;
  const [B, T] = q.shape as [number, number];
  const capacity = k.shape[1]!;
  const integers = (value: (b: number) => number): Tensor =>
    tensor(
      device,
      Array.from({ length: B }, (_, b) => value(b)),
      [B],
      { dtype: "int32" },
    );
  const slabOf = (x: Tensor): Tensor => {
    const slab = empty(device, x.shape, { dtype: x.dtype });
    copyInto(part(slab, 1, 0, capacity - T), part(x, 1, 0, capacity - T));
    return slab;
  };
  const slabs = { keys: slabOf(k), values: slabOf(v) };
  const slots = integers((b) => b);
  for (let t = 0; t < T; t++) {
    const place = capacity - T + t;
    const entries = integers((b) => b * capacity + place);
    writeCache(slabs.keys, entries, part(k, 1, place, 1));
    writeCache(slabs.values, entries, part(v, 1, place, 1));
    const view = { slots, lengths: integers(() => place + 1), longest: place + 1 };
    copyInto(part(output, 1, t, 1), attentionOverCache(part(q, 1, t, 1), slabs, view, options));
  }
}
