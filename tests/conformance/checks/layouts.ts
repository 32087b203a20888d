import assert from "node:assert/strict";
import type { Placement } from "../samples.ts";
import { type Check, reference, runCase } from "../suite.ts";
import { relativeError, tolerance } from "../tolerance.ts";

function layoutCheck(placement: Placement, sentence: string): Check {
  return {
    name: placement,
    sentence,
    applies: (subject) => subject.case.fails === undefined && subject.target.name !== "host",
    async run(subject) {
      const got = runCase(await subject.target.open(1), subject.entry, subject.case, placement);
      const expected = reference(subject);
      for (const part of ["outputs", "gradients"] as const) {
        assert.deepEqual(Object.keys(got[part]), Object.keys(expected[part]));
        for (const name in expected[part]) {
          const { terms, gradientTerms } = subject.case;
          const bound = tolerance(
            "float32",
            (part === "gradients" ? gradientTerms?.[name] : undefined) ?? terms,
          );
          const error = relativeError(got[part][name]!, expected[part][name]!);
          assert.ok(error <= bound, `${name} of the ${part} is off by ${error}, allowed are ${bound}`);
        }
      }
    },
  };
}

export const offsetCheck: Check = layoutCheck(
  "offset",
  "Inputs and incoming gradients may begin anywhere in a larger buffer of NaN: nothing is read beyond them.",
);

export const slicedCheck: Check = layoutCheck(
  "sliced",
  "Inputs and incoming gradients may be cut out of longer axes, NaN between their rows.",
);

export const reversedCheck: Check = layoutCheck(
  "reversed",
  "Inputs and incoming gradients may lie in memory in the opposite order of axes.",
);
