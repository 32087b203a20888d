/** Shapes drawn at random, up to six axes that stretch on either side: every device agrees with float64. */
import { after, test } from "node:test";
import fc from "fast-check";
import { addEntry, divideEntry, multiplyEntry, subtractEntry } from "../../src/ops/arithmetic/index.ts";
import type { OpCase } from "../../src/ops/op.ts";
import { sizeOf } from "../../src/tensor/shape.ts";
import { gradientsCheck } from "./checks/gradients.ts";
import { reversedCheck } from "./checks/layouts.ts";
import { valuesCheck } from "./checks/values.ts";
import { words } from "./suite.ts";
import { closeTargets, hostTarget, wasmTarget } from "./targets.ts";

/** A shape of up to six axes, which of them each operand stretches along, and how many leading ones it lacks. */
const pairs = fc
  .array(fc.integer({ min: 0, max: 5 }), { maxLength: 6 })
  .chain((shape) =>
    fc.tuple(
      fc.constant(shape),
      fc.array(fc.constantFrom("both", "a", "b"), { minLength: shape.length, maxLength: shape.length }),
      fc.nat(shape.length),
    ),
  )
  .map(([shape, stretches, lacks]) => {
    const operand = (name: string): number[] =>
      shape.map((length, axis) => (stretches[axis] === name ? 1 : length));
    return { a: operand("a"), b: operand("b").slice(lacks) };
  });

for (const entry of [addEntry, subtractEntry, multiplyEntry, divideEntry]) {
  test(`${words(entry.name)} of shapes that broadcast at random`, async () => {
    await fc.assert(
      fc.asyncProperty(pairs, async ({ a, b }) => {
        const size = Math.max(sizeOf(a), sizeOf(b), 1);
        const terms = 5 ** 6 * size;
        const divisor = { shape: b, sample: "uniform", low: 0.5, high: 2 } as const;
        const opCase: OpCase<undefined> = {
          name: `[${a}] and [${b}]`,
          inputs: { a: { shape: a }, b: divisor },
          options: undefined,
          terms: 1,
          gradientTerms: { a: terms, b: terms },
        };
        for (const target of [hostTarget, wasmTarget("a")]) {
          const subject = { entry, case: opCase, target };
          await valuesCheck.run(subject);
          await gradientsCheck.run(subject);
          if (target !== hostTarget) await reversedCheck.run(subject);
        }
      }),
      { numRuns: 60, seed: 7 },
    );
  });
}

after(closeTargets);
