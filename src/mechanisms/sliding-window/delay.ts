import { copyInto } from "../../autograd/move.ts";
import { apply, type Op } from "../../autograd/tape.ts";
import { empty, full, Tensor } from "../../autograd/tensor.ts";
import { part } from "../../ops/split/index.ts";

/** Token t of the result is token t − shift of x: how many tokens, and where sequences of a packed row begin and end. */
interface Delay {
  readonly time: number;
  readonly shift: number;
  readonly bounds: readonly number[] | undefined;
}

/** Corresponding runs of x and of the delayed tensor: first token of each, and how many. */
type Run = readonly [from: number, to: number, count: number];

function runsOf({ time, shift, bounds }: Delay, tokens: number): readonly Run[] {
  const run = (begin: number, room: number): Run => [begin, begin + shift, Math.max(0, room)];
  if (bounds === undefined) return [run(0, Math.min(tokens, time - shift))];
  return bounds.slice(1).map((end, n) => run(bounds[n]!, end - bounds[n]! - shift));
}

/** Zeros over a stretch of tokens. */
function clear(x: Tensor, from: number, to: number): void {
  if (to <= from) return;
  const zero = full(x.device, [1], 0, { dtype: x.dtype });
  const target = part(x, 1, from, to - from);
  const strides = target.shape.map(() => 0);
  copyInto(target, new Tensor({ ...zero.layout, strides }, target.shape));
}

/** Copies runs from one tensor to the other and clears what lies between them. */
function place(y: Tensor, x: Tensor, runs: readonly Run[]): Tensor {
  let end = 0;
  for (const [from, to, count] of runs) {
    if (count === 0) continue;
    clear(y, end, to);
    copyInto(part(y, 1, to, count), part(x, 1, from, count));
    end = to + count;
  }
  clear(y, end, y.shape[1]!);
  return y;
}

const op: Op<{ x: Tensor }, Delay, { y: Tensor }> = {
  name: "sliding-window.delay",
  forward: ({ x }, delay) => {
    const [B, tokens, ...inner] = x.shape as [number, number, ...number[]];
    const y = empty(x.device, [B, delay.time, ...inner], { dtype: x.dtype });
    return { outputs: { y: place(y, x, runsOf(delay, tokens)) }, saved: undefined };
  },
  backward: ({ inputs: { x }, options, grads: { y } }) => {
    const back = runsOf(options, x.shape[1]!).map(([from, to, count]): Run => [to, from, count]);
    return { x: y && place(empty(x.device, x.shape, { dtype: x.dtype }), y, back) };
  },
};

/**
 * What lies `shift` tokens back: `x [B,n,...]` → `[B,time,...]`, zeros where there is nothing. Packed sequences see
 * nothing of each other.
 */
export function delayed(x: Tensor, time: number, shift: number, bounds?: readonly number[]): Tensor {
  return apply(op, { x }, { time, shift, bounds }).y;
}
