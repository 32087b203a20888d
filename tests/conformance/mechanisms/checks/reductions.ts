import type { Mechanism } from "../../../../src/mechanisms/mechanism.ts";
import { mechanism as find } from "../../../../src/mechanisms/registry.ts";
import { draw, usual } from "../draw.ts";
import { agree, type Check, evaluate, formOf, outputBound, type Results } from "../subject.ts";

/** The output, and the parts of the state that the two keep alike. */
function comparable(one: Mechanism, other: Mechanism, results: Results): Results {
  const parts = Object.values(one.state).filter(({ output, axes }) => {
    return Object.values(other.state).some(
      (part) => part.output === output && part.axes === axes && !axes.includes("past"),
    );
  });
  const names = ["output", ...parts.map(({ output }) => output)];
  return Object.fromEntries(Object.entries(results).filter(([name]) => names.includes(name)));
}

export const reductionsCheck: Check = {
  name: "reductions",
  sentence: "With the inputs that a reduction names, this mechanism is that other one.",
  applies: ({ mechanism }) => mechanism.reductions.length > 0,
  async run({ mechanism, name, form, target }) {
    const device = await target.open(1);
    for (const { to, when, inputs, sizes } of mechanism.reductions) {
      const other = find(to);
      const given = inputs(draw(mechanism, { ...usual, ...sizes }));
      const { cuSeqlens: _, ...ownOptions } = given.ownOptions ?? {};
      const { cuSeqlens: __, ...otherOptions } = given.otherOptions ?? {};
      const truth = comparable(mechanism, other, other.reference(given.other, otherOptions));
      agree(mechanism.reference(given.own, ownOptions), truth, 1e-12, `references, ${when}`);
      const bound = outputBound(mechanism, usual);
      agree(evaluate(device, form, given.own, ownOptions), truth, bound, `${to}'s reference, ${when}`);
      const twin = formOf(other, name);
      if (twin === undefined) continue;
      agree(evaluate(device, twin, given.other, otherOptions), truth, bound, `${to} itself, ${when}`);
    }
  },
};
