import { copyInto } from "../../autograd/move.ts";
import { isRecording } from "../../autograd/tape.ts";
import { empty, type Tensor, type Tensors, tensor } from "../../autograd/tensor.ts";
import { ConfigError, ShapeError, UnsupportedError } from "../../errors.ts";
import { concat } from "../../ops/concat/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { part, slice, split } from "../../ops/split/index.ts";
import { checkInputs } from "../inputs.ts";
import type { Form, FormName, FormOptions, InputRule } from "../mechanism.ts";
import { pack, packingOf, unpack } from "../recurrence/packing.ts";
import type { SequenceForm } from "../recurrence/rule.ts";
import { groupedKey, groupedQuery, groupedValue } from "../rules.ts";
import { attendWindowed, type Join } from "./join.ts";
import { learnedMaps, type Maps, plainMaps } from "./maps.ts";
import { emptyRing, keepRecent, type RingRows, recent, stepWindow, withToken } from "./ring.ts";

const rule = (axes: string, sample = (normal: number): number => normal): InputRule => ({
  ...{ axes, domain: "any", optional: true, sample },
});
const share = (normal: number): number => 1 / (1 + Math.exp(-normal));

/** Inputs of a sliding window joined with linear attention. */
export const inputs: Readonly<Record<string, InputRule>> = {
  q: groupedQuery,
  k: groupedKey,
  v: groupedValue,
  queryFeatures: rule("HQ K F"),
  keyFeatures: rule("HQ K F"),
  windowFactor: rule("HQ", share),
  linearFactor: rule("HQ", share),
  gate: rule("B T HQ", share),
  initialKeys: rule("B past HKV K"),
  initialValues: rule("B past HKV V"),
  initialState: rule("B HQ G V"),
  initialNormalizer: rule("B HQ G", Math.abs),
};

/** Tokens of exact softmax where a call does not say. */
export const defaultWindow = 64;

/** How a form is called beyond its inputs. */
export interface SlidingWindowFormOptions extends FormOptions {
  /** Tokens of exact softmax, a token itself among them; 64 unless given, 0 leaves linear attention alone. */
  readonly window?: number;
  /** `joint`: one denominator for both; `gated`: each with its own, weighed by `gate`. Joint unless given. */
  readonly join?: "joint" | "gated";
}

/** A call whose inputs fit. */
interface Call {
  readonly given: Tensors;
  readonly maps: Maps;
  readonly how: Join;
  readonly window: number;
  readonly scale: number | undefined;
  readonly cuSeqlens: Tensor | undefined;
}

/**
 * The forms of a sliding window joined with linear attention; causal. `recurrent`, `chunkwise` and `parallel` name what the
 * linear part does, the window runs in tiles; `step` walks token by token over a window buffer and sums of fixed size.
 *
 * Beside the inputs of its contract every form takes `mask [B,T]` int32: tokens where it is 0 are seen by nobody and have
 * zeros as output. The carried state is the last window − 1 keys and values and the sums over all before them; packed
 * sequences and padded rows begin from nothing and return none.
 */
export const forms: Readonly<Record<FormName, Form>> = {
  recurrent: formOf("recurrent"),
  step: formOf("step"),
  chunkwise: formOf("chunkwise"),
  parallel: formOf("parallel"),
};

function formOf(name: FormName): Form {
  const who = `sliding-window.${name}`;
  return ({ mask, ...own }, options: SlidingWindowFormOptions = {}) => {
    const { cuSeqlens } = options;
    checkInputs(who, inputs, own, { causal: true, cuSeqlens });
    checkCall(who, { ...own, mask }, options);
    if (name === "step") checkStep(who, own);
    const { q, k } = own as { q: Tensor; k: Tensor };
    const packing = mask && packingOf(who, mask, k.shape[0]!, k.shape[1]!);
    if (packing === undefined) return compute(name, callOf(own, options, q, cuSeqlens));
    const real = Object.fromEntries(
      Object.entries(own).map(([key, x]) => [
        key,
        x && inputs[key]!.axes.startsWith("B T") ? pack(x, packing) : x,
      ]),
    );
    const { output } = compute(name, callOf(real, options, q, packing.cuSeqlens));
    return { output: unpack(output!, packing) };
  };
}

function callOf(
  given: Tensors,
  options: SlidingWindowFormOptions,
  q: Tensor,
  cuSeqlens: Tensor | undefined,
): Call {
  const { queryFeatures, keyFeatures, windowFactor, linearFactor, gate } = given;
  const { window = defaultWindow, join: kind = "joint", eps = 1e-6, scale } = options;
  const maps =
    queryFeatures === undefined || keyFeatures === undefined
      ? plainMaps(q.shape[2]!, q.shape[3]!)
      : learnedMaps(queryFeatures, keyFeatures);
  return { given, maps, how: { kind, windowFactor, linearFactor, gate, eps }, window, scale, cuSeqlens };
}

/** Sums with their totals as a last column, `[B,HQ,F,V+1]`. */
function sumsOf({ given }: Call): Tensor | undefined {
  const { initialState: state, initialNormalizer: totals } = given;
  return state && concat([state, reshape(totals!, [...totals!.shape, 1])], -1);
}

/** The final state as its parts. */
function finals(sums: Tensor, keys: Tensor, values: Tensor): Tensors {
  const [state, totals] = split(sums, [sums.shape[3]! - 1, 1], -1) as [Tensor, Tensor];
  const finalNormalizer = reshape(totals, totals.shape.slice(0, 3));
  return { finalState: state, finalNormalizer, finalKeys: keys, finalValues: values };
}

function compute(name: FormName, call: Call): Tensors {
  return name === "step" ? walk(call) : sequence(name, call);
}

function sequence(form: SequenceForm, call: Call): Tensors {
  const { given, maps, how, window, scale, cuSeqlens } = call;
  const { q, k, v, initialKeys, initialValues } = given as Record<string, Tensor> &
    Record<"q" | "k" | "v", Tensor>;
  const keys = initialKeys === undefined ? k : concat([initialKeys, k], 1);
  const values = initialValues === undefined ? v : concat([initialValues, v], 1);
  const state = sumsOf(call);
  const windowed = { q, keys, values, state, window, scale, form, cuSeqlens, ...maps };
  const { output, state: sums } = attendWindowed(windowed, how);
  if (cuSeqlens !== undefined) return { output };
  const n = keys.shape[1]!;
  const kept = Math.min(Math.max(window - 1, 0), n);
  // The window of a query holds one token more than the state keeps.
  const leaves = window > 0 && n >= window;
  const at = (x: Tensor): Tensor => slice(x, 1, n - window, n - window + 1);
  const all = leaves ? withToken(sums, at(keys), at(values), maps) : sums;
  return { output, ...finals(all, slice(keys, 1, n - kept), slice(values, 1, n - kept)) };
}

/** Token by token; packed sequences one after another. */
function walk(call: Call): Tensors {
  const { given, cuSeqlens } = call;
  if (cuSeqlens === undefined) return walkRows(call);
  const bounds = [...cuSeqlens.dataSync()];
  const { q, v } = given as { q: Tensor; v: Tensor };
  const output = empty(q.device, [...q.shape.slice(0, 3), v.shape[3]!], { dtype: q.dtype });
  for (const [n, begin] of bounds.slice(0, -1).entries()) {
    const length = bounds[n + 1]! - begin;
    const cut = (x: Tensor): Tensor => part(x, 1, begin, length);
    const rows = Object.fromEntries(
      Object.entries(given).map(([key, x]) => [key, x && inputs[key]!.axes.startsWith("B T") ? cut(x) : x]),
    );
    const how = { ...call.how, gate: call.how.gate && cut(call.how.gate) };
    const { output: own } = walkRows({ ...call, given: rows, how, cuSeqlens: undefined });
    copyInto(part(output, 1, begin, length), own!);
  }
  return { output };
}

function walkRows(call: Call): Tensors {
  const { given, maps, how, window, scale } = call;
  const { q, k, v } = given as { q: Tensor; k: Tensor; v: Tensor };
  const [B, T, HQ, K] = q.shape as [number, number, number, number];
  const [HKV, V] = v.shape.slice(2) as [number, number];
  const before = given["initialKeys"]?.shape[1] ?? 0;
  // A window that nothing leaves needs no more room than there are tokens.
  const room = Math.min(window, before + T);
  const ring = emptyRing(q, { slots: B, window: room, HQ, HKV, K, V, F: maps.features });
  const slotList = Array.from({ length: B }, (_, b) => b);
  const slots = tensor(q.device, slotList, [B], { dtype: "int32" });
  const rowsAt = (seen: number): RingRows => ({ slots, slotList, seen: slotList.map(() => seen) });
  if (before > 0) keepRecent(ring, rowsAt(0), given["initialKeys"]!, given["initialValues"]!);
  const sums = sumsOf(call);
  if (sums !== undefined) copyInto(ring.sums, sums);
  const output = empty(q.device, [B, T, HQ, V], { dtype: q.dtype });
  for (let t = 0; t < T; t++) {
    const cut = (x: Tensor): Tensor => part(x, 1, t, 1);
    const token = { q: cut(q), k: cut(k), v: cut(v) };
    const own = { ...how, gate: how.gate && cut(how.gate) };
    copyInto(cut(output), stepWindow(ring, rowsAt(before + t), token, maps, own, scale));
  }
  const n = before + T;
  const kept = Math.min(Math.max(window - 1, 0), n);
  const held = recent(ring, rowsAt(n), kept);
  if (window === 0 || n < window) return { output, ...finals(ring.sums, held.keys, held.values) };
  const oldest = recent(ring, rowsAt(n), window);
  const all = withToken(ring.sums, slice(oldest.keys, 1, 0, 1), slice(oldest.values, 1, 0, 1), maps);
  return { output, ...finals(all, held.keys, held.values) };
}

/** Throws for a window that is no whole number >= 0. */
export function checkWindow(who: string, window: number): void {
  if (Number.isInteger(window) && window >= 0) return;
  throw new ConfigError(
    `[${who}] bad window: expected a whole number >= 0, got ${window}`,
    "A window of 0 leaves linear attention alone.",
  );
}

function checkCall(who: string, given: Tensors, options: SlidingWindowFormOptions): void {
  const { causal = true, cuSeqlens, window = defaultWindow, join: kind = "joint" } = options;
  const { mask } = given;
  checkWindow(who, window);
  if (!causal) {
    throw new UnsupportedError(
      `[${who}] has no causal: false: expected causal, got false, but its window looks back`,
      "Take softmax or linear attention to see everything.",
    );
  }
  if (kind !== "joint" && kind !== "gated")
    throw new ConfigError(`[${who}] join: expected joint or gated, got ${String(kind)}`);
  if (mask !== undefined && cuSeqlens !== undefined) {
    throw new ConfigError(
      `[${who}] mask and cuSeqlens both say where sequences lie: expected one of them, got both`,
    );
  }
  checkTogether(who, given, ["queryFeatures", "keyFeatures"]);
  checkTogether(who, given, ["initialKeys", "initialValues"]);
  checkTogether(who, given, ["initialState", "initialNormalizer"]);
  if (kind === "gated" && given["gate"] === undefined)
    throw new ConfigError(`[${who}] join gated weighs by a gate: expected gate [B, T, HQ], got none`);
  const { initialKeys, initialState } = given;
  if ((initialKeys ?? initialState) === undefined) return;
  if (mask !== undefined || cuSeqlens !== undefined) {
    throw new UnsupportedError(
      `[${who}] a state continues whole rows: expected no mask and no cuSeqlens beside initialKeys and initialState`,
      "Layers carry a state through padded and packed calls.",
    );
  }
  const most = Math.max(window - 1, 0);
  if (initialKeys === undefined || initialKeys.shape[1]! <= most) return;
  throw new ShapeError(
    `[${who}] initialKeys are the window before the call: expected at most window − 1 = ${most} tokens, got ${initialKeys.shape[1]}`,
  );
}

function checkTogether(who: string, given: Tensors, names: readonly string[]): void {
  const there = names.filter((name) => given[name] !== undefined);
  if (there.length === 0 || there.length === names.length) return;
  throw new ConfigError(
    `[${who}] ${names.join(", ")} come together: expected all of them, got ${there.join(", ")}`,
  );
}

function checkStep(who: string, given: Tensors): void {
  const wanting = Object.entries(given).find(([, x]) => x?.requiresGrad);
  if (wanting === undefined || !isRecording()) return;
  throw new UnsupportedError(
    `[${who}] single steps have no gradients: expected inputs without them, got ${wanting[0]} that requires one`,
    "Train with the chunkwise form, or wrap the call in noGrad.",
  );
}
