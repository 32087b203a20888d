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
 * const { y } = recompute({ x }, ({ x }) => ({ y: block(x) }));
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
    backward: ({ inputs: given, grads, needs }) =>
      scope(firstTensor(given).device, () => {
        const fresh: Record<string, Tensor | undefined> = {};
        for (const name in given) {
          const input: Tensor | undefined = given[name];
          fresh[name] = input && new Tensor(input.layout, input.shape, needs[name] ?? false);
        }
        const outputs = withGrad(() => segment(fresh as Inputs));
        const names = Object.keys(outputs).filter((name) => grads[name] !== undefined);
        const found = leafGradients(
          names.map((name) => outputs[name]!),
          names.map((name) => grads[name]),
        );
        const results: Record<string, Tensor | undefined> = {};
        const own = new Set<Tensor>();
        for (const name in fresh) {
          if (fresh[name] === undefined) continue;
          own.add(fresh[name]);
          results[name] = found.get(fresh[name]);
        }
        for (const [leaf, grad] of found) if (!own.has(leaf)) deposit(leaf, grad);
        return results as { [Name in keyof Inputs]?: Tensor };
      }),
  };
  // A segment may reach weights that require gradients while none of its inputs does.
  return apply(op, inputs, undefined, true);
}

function firstTensor(inputs: Tensors): Tensor {
  for (const name in inputs) if (inputs[name] !== undefined) return inputs[name];
  throw new TypeError("[recompute] a segment has at least one input tensor");
}
