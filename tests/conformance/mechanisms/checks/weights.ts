import assert from "node:assert/strict";
import { scope } from "../../../../src/autograd/scope.ts";
import { noGrad } from "../../../../src/autograd/tape.ts";
import { tensor } from "../../../../src/autograd/tensor.ts";
import type { Device } from "../../../../src/device/device.ts";
import { hostDevice } from "../../../../src/device/host/host.ts";
import type { Mechanism, Values } from "../../../../src/mechanisms/mechanism.ts";
import { impliedWeights } from "../../../../src/mechanisms/weights.ts";
import { draw, type Inputs, usual } from "../draw.ts";
import { agree, type Check, evaluate, outputBound, usualCall } from "../subject.ts";

const sizes = { ...usual, T: 19 };

function weightsOn(device: Device, mechanism: Mechanism, inputs: Inputs): Values {
  return scope(device, () =>
    noGrad(() => {
      const placed = Object.fromEntries(
        Object.entries(inputs).map(([name, { data, shape }]) => [name, tensor(device, data, shape)]),
      );
      const weights = impliedWeights(mechanism, placed, usualCall(mechanism));
      return { shape: weights.shape, data: Float64Array.from(weights.dataSync()) };
    }),
  );
}

/** Σ_t weights · v_t. */
function weighed(weights: Values, v: Values): Values {
  const [B, H, T, Tk] = weights.shape as [number, number, number, number];
  const [heads, V] = v.shape.slice(2) as [number, number];
  const data = new Float64Array(B * T * H * V);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < H; h++)
      for (let t = 0; t < T; t++)
        for (let s = 0; s < Tk; s++) {
          const weight = weights.data[((b * H + h) * T + t) * Tk + s]!;
          const from = ((b * Tk + s) * heads + Math.floor(h / (H / heads))) * V;
          for (let c = 0; c < V; c++) data[((b * T + t) * H + h) * V + c]! += weight * v.data[from + c]!;
        }
  return { shape: [B, T, H, V], data };
}

export const weightsCheck: Check = {
  name: "weights",
  sentence:
    "The weights that a mechanism implies, times the values, are its output, and none is of the future.",
  applies: ({ mechanism }) => mechanism.traits.linearInValue,
  async run({ mechanism, form, target }) {
    const inputs = draw(mechanism, sizes, { carried: false });
    const host = hostDevice({ dtype: "float64" });
    const weights = weightsOn(host, mechanism, inputs);
    host.close();
    if (usualCall(mechanism).causal) {
      const [T, Tk] = weights.shape.slice(2) as [number, number];
      const seen = (at: number): boolean => at % Tk <= Math.floor(at / Tk) % T;
      const leak = weights.data.findIndex((weight, at) => weight !== 0 && !seen(at));
      assert.equal(leak, -1, `token ${Math.floor(leak / Tk) % T} sees token ${leak % Tk}`);
    }
    const got = evaluate(await target.open(1), form, inputs, usualCall(mechanism));
    const expected = { output: weighed(weights, inputs["v"]!) };
    agree(got, expected, outputBound(mechanism, sizes), "weights times values");
  },
};
