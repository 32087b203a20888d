import assert from "node:assert/strict";
import { gradCheck } from "../../../src/autograd/grad-check.ts";
import { hostDevice } from "../../../src/device/host/host.ts";
import { Random } from "../../../src/tensor/random.ts";
import { type Check, placeInputs } from "../suite.ts";

/** The step of central differences; their error is near its square and near eps over it: both stay under 1e-7. */
const step = 1e-5;
const bound = 1e-6;

export const finiteDifferencesCheck: Check = {
  name: "finite-differences",
  sentence: "Gradients along random directions agree with central differences in float64.",
  applies: (subject) => subject.case.fails === undefined && subject.target.name === "host",
  async run({ entry, case: opCase }) {
    const device = hostDevice({ dtype: "float64" });
    const inputs = placeInputs(device, entry, opCase, "dense");
    const all = Object.values(inputs);
    if (all.every((input) => !input.requiresGrad) || all.every((input) => input.size === 0)) return;
    const directions = new Map<number, Float64Array>();
    const direction = (stream: number, element: number): number => {
      const known = directions.get(stream) ?? new Random(3, stream).normal(new Float64Array(2 ** 14));
      directions.set(stream, known);
      return known[element % known.length]!;
    };
    const rows = gradCheck(device, (given) => entry.run(given, opCase.options), inputs, direction, step);
    for (const row of rows) {
      assert.ok(
        row.relativeError <= bound,
        `${row.input}: derivative ${row.analytic}, differences say ${row.numeric}`,
      );
    }
  },
};
