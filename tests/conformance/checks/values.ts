import assert from "node:assert/strict";
import { type Check, reference, runCase } from "../suite.ts";
import { relativeError, tolerance } from "../tolerance.ts";

export const valuesCheck: Check = {
  name: "values",
  sentence:
    "Outputs lie within 8·eps·sqrt(terms) of float64 loops, in memory that was filled with NaN before.",
  applies: (subject) => subject.case.fails === undefined,
  async run(subject) {
    const { outputs } = runCase(await subject.target.open(1), subject.entry, subject.case);
    const expected = reference(subject).outputs;
    assert.deepEqual(Object.keys(outputs), Object.keys(expected));
    const bound = tolerance("float32", subject.case.terms);
    for (const name in expected) {
      const error = relativeError(outputs[name]!, expected[name]!);
      assert.ok(error <= bound, `${name} is off by ${error}, allowed are ${bound}`);
    }
  },
};
