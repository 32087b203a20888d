import type { Device } from "../device/device.ts";
import { checkTensor, DtypeError, ShapeError } from "../errors.ts";
import { accumulate, copyInto } from "./move.ts";
import { empty, full, Tensor, type Tensors } from "./tensor.ts";

/** Which of the named values need something, by the names of the tensors they belong to. */
export type Flags<Names> = { readonly [Name in keyof Names]?: boolean };

/** Gradients by the names of the tensors they belong to; an absent one is zero. */
export type Gradients<Names> = { readonly [Name in keyof Names]?: Tensor | undefined };

/** What the backward pass of an op may look at. */
export interface BackwardContext<Inputs, Options, Outputs, Saved> {
  readonly inputs: Inputs;
  readonly options: Options;
  readonly outputs: Outputs;
  readonly saved: Saved;
  /** Incoming gradients by output name. */
  readonly grads: Gradients<Outputs>;
  /** Which inputs need a gradient; computing the others is wasted. */
  readonly needs: Flags<Inputs>;
}

/** A differentiable op: forward and backward side by side, everything by name. */
export interface Op<Inputs extends Tensors, Options, Outputs extends Tensors, Saved = undefined> {
  readonly name: string;
  forward(inputs: Inputs, options: Options): { readonly outputs: Outputs; readonly saved: Saved };
  backward(context: BackwardContext<Inputs, Options, Outputs, Saved>): Gradients<Inputs>;
}

/** One recorded op. */
export interface Node {
  readonly name: string;
  /** Rises with every recorded op: an op's inputs always have smaller numbers. */
  readonly order: number;
  readonly inputs: Tensors;
  readonly outputs: Tensors;
  backward(grads: Readonly<Record<string, Tensor | undefined>>): Readonly<Record<string, Tensor | undefined>>;
}

let recording = true;
let order = 0;

/** Runs `fn` without recording: its results carry no history. `fn` is synchronous. */
export function noGrad<Result>(fn: () => Result): Result {
  return withRecording(false, fn);
}

/** Runs `fn` with recording on, also inside `noGrad`: how a recomputed segment records itself. */
export function withGrad<Result>(fn: () => Result): Result {
  return withRecording(true, fn);
}

/** Whether ops are being recorded at this moment. */
export function isRecording(): boolean {
  return recording;
}

function withRecording<Result>(value: boolean, fn: () => Result): Result {
  const before = recording;
  recording = value;
  try {
    return fn();
  } finally {
    recording = before;
  }
}

/** Runs an op forward and records it where gradients are wanted: by an input, or by `always`. */
export function apply<Inputs extends Tensors, Options, Outputs extends Tensors, Saved>(
  op: Op<Inputs, Options, Outputs, Saved>,
  inputs: Inputs,
  options: Options,
  always = false,
): Outputs {
  const device = sameDevice(op.name, inputs);
  const { outputs, saved } = op.forward(inputs, options);
  if (!recording || device === undefined) return outputs;
  let needed = always;
  const needs: Record<string, boolean> = {};
  for (const name in inputs) {
    needs[name] = inputs[name]?.requiresGrad ?? false;
    if (needs[name]) needed = true;
  }
  if (!needed) return outputs;
  const node: Node = {
    name: op.name,
    order: order++,
    inputs,
    outputs,
    backward: (grads) =>
      op.backward({
        inputs,
        options,
        outputs,
        saved,
        grads: grads as Gradients<Outputs>,
        needs: needs as Flags<Inputs>,
      }),
  };
  for (const name in outputs) {
    const output: Tensor | undefined = outputs[name];
    if (output === undefined || output.dtype === "int32" || output.dtype === "uint8") continue;
    output.requiresGrad = true;
    output.node = node;
  }
  return outputs;
}

function sameDevice(who: string, inputs: Tensors): Device | undefined {
  let device: Device | undefined;
  let isFirst = true;
  for (const name in inputs) {
    const input = inputs[name];
    // The first input of an op is never one that may be left out.
    if (input !== undefined || isFirst) checkTensor(who, name, input);
    isFirst = false;
    if (input === undefined) continue;
    if (device !== undefined && input.device !== device) {
      throw new DtypeError(
        `[${who}] all inputs live on one device: ${name} is on another ${input.device.kind} device`,
      );
    }
    device = input.device;
  }
  return device;
}

/**
 * Sends gradients from `outputs` back to every leaf that requires them, adding to its `grad`.
 *
 * For a scalar loss the seed is 1; otherwise `seeds` holds one tensor per output, of the same shape.
 * Gradients of leaves live as long as their leaf does, so that several calls add up.
 *
 * @throws ShapeError when a seed is missing for an output of size other than 1, or has another shape.
 */
export function backward(outputs: Tensor | readonly Tensor[], seeds?: readonly (Tensor | undefined)[]): void {
  const roots = outputs instanceof Tensor ? [outputs] : outputs;
  for (const [leaf, grad] of leafGradients(roots, seeds)) noGrad(() => deposit(leaf, grad));
}

/**
 * The gradients of `outputs` by the given tensors, without adding to the `grad` of any leaf.
 *
 * Entry i belongs to `wrt[i]`, a leaf that requires gradients; undefined where the outputs do not depend on it.
 */
export function gradients(
  outputs: Tensor | readonly Tensor[],
  wrt: readonly Tensor[],
  seeds?: readonly (Tensor | undefined)[],
): (Tensor | undefined)[] {
  const found = leafGradients(outputs instanceof Tensor ? [outputs] : outputs, seeds);
  return wrt.map((leaf) => found.get(leaf));
}

/** One backward pass: what arrives at every leaf that requires a gradient. */
export function leafGradients(
  roots: readonly Tensor[],
  seeds?: readonly (Tensor | undefined)[],
): ReadonlyMap<Tensor, Tensor> {
  return noGrad(() => {
    const pending = new Map<Tensor, Tensor>();
    const owned = new Set<Tensor>();
    const leaves = new Map<Tensor, Tensor>();
    const send = (target: Tensor, grad: Tensor): void => {
      if (target.requiresGrad) addGradient(target.node === undefined ? leaves : pending, owned, target, grad);
    };
    for (const [i, root] of roots.entries()) send(root, seedFor(root, seeds?.[i], i));
    for (const node of nodesBehind(roots)) {
      const grads = takeGradients(pending, node);
      if (grads === undefined) continue;
      const results = node.backward(grads);
      for (const name in results) {
        const input = node.inputs[name];
        const grad = results[name];
        if (input === undefined || grad === undefined) continue;
        checkGradient(node.name, name, input, grad);
        send(input, grad);
      }
    }
    return leaves;
  });
}

/** What has arrived at the outputs of a node, by name; undefined when nothing has. */
function takeGradients(
  pending: Map<Tensor, Tensor>,
  node: Node,
): Record<string, Tensor | undefined> | undefined {
  const grads: Record<string, Tensor | undefined> = {};
  let any = false;
  for (const name in node.outputs) {
    const output = node.outputs[name];
    if (output === undefined) continue;
    grads[name] = pending.get(output);
    if (pending.delete(output)) any = true;
  }
  return any ? grads : undefined;
}

function seedFor(root: Tensor, seed: Tensor | undefined, i: number): Tensor {
  if (seed === undefined) {
    if (root.size === 1) return full(root.device, root.shape, 1, { dtype: root.dtype });
    throw new ShapeError(
      `[backward] output ${i} has shape [${root.shape.join(", ")}] and no seed`,
      "Reduce it to one number first, or pass a seed of the same shape.",
    );
  }
  checkGradient("backward", `seed ${i}`, root, seed);
  return seed;
}

function checkGradient(who: string, name: string, value: Tensor, grad: Tensor): void {
  const fits =
    value.shape.length === grad.shape.length &&
    value.shape.every((length, axis) => length === grad.shape[axis]);
  if (fits && value.dtype === grad.dtype) return;
  throw new ShapeError(
    `[${who}] the gradient of ${name} has the shape and dtype of ${name}: expected ${value.dtype} [${value.shape.join(", ")}], got ${grad.dtype} [${grad.shape.join(", ")}]`,
  );
}

/** Every recorded op that leads to the roots, latest first. */
function nodesBehind(roots: readonly Tensor[]): Node[] {
  const seen = new Set<Node>();
  const stack: Node[] = [];
  const visit = (tensor: Tensor | undefined): void => {
    if (tensor?.node !== undefined && !seen.has(tensor.node)) {
      seen.add(tensor.node);
      stack.push(tensor.node);
    }
  };
  for (const root of roots) visit(root);
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    for (const name in node.inputs) visit(node.inputs[name]);
  }
  return [...seen].sort((a, b) => b.order - a.order);
}

/** A gradient that arrives a second time is added into a tensor of our own: ops may return what they were given. */
function addGradient(into: Map<Tensor, Tensor>, owned: Set<Tensor>, key: Tensor, grad: Tensor): void {
  const before = into.get(key);
  if (before === undefined) {
    into.set(key, grad);
    return;
  }
  let sum = before;
  if (!owned.has(before)) {
    sum = empty(grad.device, grad.shape, { dtype: grad.dtype });
    owned.add(sum);
    copyInto(sum, before);
  }
  accumulate(sum, grad);
  into.set(key, sum);
}

/** Adds to the `grad` of a leaf, which lives as long as the leaf. */
export function deposit(leaf: Tensor, grad: Tensor): void {
  if (leaf.grad === undefined) copyInto(leaf.openGrad(), grad);
  else accumulate(leaf.grad, grad);
}
