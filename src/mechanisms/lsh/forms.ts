import type { Tensor, Tensors } from "../../autograd/tensor.ts";
import { ConfigError, ShapeError } from "../../errors.ts";
import { concat } from "../../ops/concat/index.ts";
import { slice } from "../../ops/split/index.ts";
import { checkMask } from "../attention/operands.ts";
import { checkInputs } from "../inputs.ts";
import {
  type Absent,
  absent,
  type Form,
  type FormName,
  type FormOptions,
  type InputRule,
} from "../mechanism.ts";
import { pack, packingOf, unpack } from "../recurrence/packing.ts";
import { attendHashed, type LshChoices } from "./attend.ts";

const same = (normal: number): number => normal;

/** Inputs of LSH attention; keys are the queries at unit length. */
export const inputs: Readonly<Record<string, InputRule>> = {
  q: { axes: "B T H K", domain: "any", sample: same },
  v: { axes: "B T H V", domain: "any", sample: same },
  rotations: {
    axes: "rounds K half",
    domain: "standard normal; half as many columns as buckets",
    differentiable: false,
    sample: same,
  },
};

/** How a form is called beyond its inputs. */
export interface LshFormOptions extends FormOptions {
  /** Tokens of a group of the sorted sequence: each sees its own group and the one before; 64 unless given. */
  readonly group?: number;
}

/** Tokens of a group where a call does not say. */
export const defaultGroup = 64;

/** Throws for a group that is no whole number >= 1. */
export function checkGroup(who: string, group: number): void {
  if (Number.isInteger(group) && group >= 1) return;
  throw new ConfigError(`[${who}] group: expected a whole number >= 1, got ${group}`);
}

/** Throws for less than one round of hashing. */
export function checkRounds(who: string, rounds: number): void {
  if (Number.isInteger(rounds) && rounds >= 1) return;
  throw new ConfigError(
    `[${who}] rounds of hashing: expected a whole number >= 1, got ${rounds}`,
    "One round is fastest, four come close to softmax.",
  );
}

/** Every sequence of a packed row on its own: hashing must not see its neighbours. */
export function attendSequences(
  q: Tensor,
  v: Tensor,
  bounds: readonly number[] | undefined,
  choices: LshChoices,
): Tensor {
  if (bounds === undefined) return attendHashed(q, v, choices);
  const cut = (x: Tensor, n: number): Tensor => slice(x, 1, bounds[n]!, bounds[n + 1]!);
  const outputs = bounds.slice(1).flatMap((end, n) => {
    return end === bounds[n] ? [] : [attendHashed(cut(q, n), cut(v, n), choices)];
  });
  return outputs.length === 0 ? attendHashed(q, v, choices) : concat(outputs, 1);
}

function check(who: string, given: Tensors, options: LshFormOptions): void {
  const { mask } = given;
  const [rounds, , half] = given["rotations"]!.shape as [number, number, number];
  checkRounds(who, rounds);
  checkGroup(who, options.group ?? defaultGroup);
  checkMask(who, mask);
  if (half < 1)
    throw new ShapeError(`[${who}] rotations have a column for two buckets: expected half >= 1, got ${half}`);
  if (mask === undefined || options.cuSeqlens === undefined) return;
  throw new ConfigError(
    `[${who}] mask and cuSeqlens both say where sequences lie: expected one of them, got both`,
  );
}

const chunkwise: Form = ({ mask, ...given }, options: LshFormOptions = {}) => {
  const who = "lsh.chunkwise";
  const { causal = true, group = defaultGroup, cuSeqlens } = options;
  checkInputs(who, inputs, given, { causal: true, cuSeqlens });
  check(who, { ...given, mask }, options);
  const { q, v, rotations } = given as { q: Tensor; v: Tensor; rotations: Tensor };
  const choices = { rotations, group, causal, scale: options.scale ?? q.shape[3]! ** -0.5 };
  const packing = mask && packingOf(who, mask, q.shape[0]!, q.shape[1]!);
  if (packing !== undefined) {
    const output = attendSequences(pack(q, packing), pack(v, packing), packing.bounds, choices);
    return { output: unpack(output, packing) };
  }
  return { output: attendSequences(q, v, cuSeqlens && [...cuSeqlens.dataSync()], choices) };
};

const sorting = "Which tokens meet is found by sorting the whole sequence";

/**
 * The forms of LSH attention, causal and full: one, by groups of the sorted sequence. Beside the inputs of its contract it
 * takes `mask [B,T]` (int32 or uint8): tokens where it is 0 are taken out and have zeros as output.
 */
export const forms: Readonly<Record<FormName, Form | Absent>> = {
  recurrent: absent(`${sorting}; there is no state to carry.`),
  step: absent(`${sorting}; a new token needs the prefix again.`),
  chunkwise,
  parallel: absent(`${sorting}; a matrix of all pairs would be softmax.`),
};
