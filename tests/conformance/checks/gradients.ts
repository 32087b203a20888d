import assert from "node:assert/strict";
import { type Check, reference, runCase } from "../suite.ts";
import { relativeError, tolerance } from "../tolerance.ts";

export const gradientsCheck: Check = {
  name: "gradients",
  sentence: "Gradients of every input lie within 8·eps·sqrt(terms) of those of float64 loops.",
  applies: (subject) => subject.case.fails === undefined,
  async run(subject) {
    const { gradients } = runCase(await subject.target.open(1), subject.entry, subject.case);
    const expected = reference(subject).gradients;
    assert.deepEqual(Object.keys(gradients), Object.keys(expected));
    for (const name in expected) {
      const bound = tolerance("float32", subject.case.gradientTerms?.[name] ?? subject.case.terms);
      const error = relativeError(gradients[name]!, expected[name]!);
      assert.ok(error <= bound, `the gradient of ${name} is off by ${error}, allowed are ${bound}`);
    }
  },
};
