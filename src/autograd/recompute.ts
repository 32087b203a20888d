import { ConfigError } from "../errors.ts";
import { scope } from "./scope.ts";
import { apply, deposit, leafGradients, noGrad, type Op, withGrad } from "./tape.ts";
import { Tensor, type Tensors } from "./tensor.ts";

/**
 * Runs `segment` without keeping what it computes in between; its backward pass runs it once more.
 *
 * Memory of a recomputed segment is that of its inputs and outputs, at the cost of a second forward pass.
 * Leaves that the segment reaches by itself (weights) get their gradients too. The segment must compute the same
 * twice: random choices in it take their seed from an argument.
 *
 * @example
 * const { y } = recompute({ x }, ({ x }) => ({ y: silu(x) }));
 */
export function recompute<Inputs extends Tensors, Outputs extends Tensors>(
  inputs: Inputs,
  segment: (inputs: Inputs) => Outputs,
): Outputs {
  const op: Op<Inputs, undefined, Outputs> = {
    name: "recompute",
    forward: (given) => {
      const device = firstTensor(given).device;
      return { outputs: scope(device, () => noGrad(() => segment(given))), saved: undefined };
    },
    backward: ({ inputs: given, grads, needs }) => {
      const own = new Map<Tensor, string>();
      const fresh: Record<string, Tensor | undefined> = {};
      for (const name in given) {
        const input: Tensor | undefined = given[name];
        if (input === undefined) continue;
        const leaf = new Tensor(input.layout, input.shape, needs[name] ?? false);
        fresh[name] = leaf;
        own.set(leaf, name);
      }
      const reached: Tensor[] = [];
      const found = scope(firstTensor(given).device, () => {
        const outputs = withGrad(() => segment(fresh as Inputs));
        const names = Object.keys(outputs).filter((name) => grads[name] !== undefined);
        const gradients = leafGradients(
          names.map((name) => outputs[name]!),
          names.map((name) => grads[name]),
        );
        reached.push(...gradients.keys());
        return [...gradients.values()];
      });
      const results: Record<string, Tensor | undefined> = {};
      for (const [i, leaf] of reached.entries()) {
        const name = own.get(leaf);
        if (name === undefined) deposit(leaf, found[i]!);
        else results[name] = found[i]!;
      }
      return results as { [Name in keyof Inputs]?: Tensor };
    },
  };
  // A segment may reach weights that require gradients while none of its inputs does.
  return apply(op, inputs, undefined, true);
}

function firstTensor(inputs: Tensors): Tensor {
  for (const name in inputs) if (inputs[name] !== undefined) return inputs[name];
  throw new ConfigError("[recompute] a segment has at least one input tensor, got none");
}
