import assert from "node:assert/strict";
import { gradCheck } from "../../../../src/autograd/grad-check.ts";
import { tensor } from "../../../../src/autograd/tensor.ts";
import { hostDevice } from "../../../../src/device/host/host.ts";
import type { Mechanism } from "../../../../src/mechanisms/mechanism.ts";
import { Random } from "../../../../src/tensor/random.ts";
import { draw, type Inputs, isCarried, usual } from "../draw.ts";
import {
  agree,
  type Call,
  type Check,
  differentiableOutputs,
  differentiate,
  formOf,
  gradientBound,
  hasCache,
  isDifferentiable,
  type Results,
  usualCall,
} from "../subject.ts";

/** Longer than a chunk of the backward pass, so that borders and segments are crossed. */
const sizes = { ...usual, T: 70 };
/** Without what is added to the normaliser a unit that all parts are kept in leaves no trace at all. */
const exact = (mechanism: Mechanism): Call => ({ ...usualCall(mechanism), eps: 0 });

const truths = new Map<string, Results>();

/** Gradients in float64; finite differences say that they are right. */
function truthOf(mechanism: Mechanism, inputs: Inputs, key: string, call: Call): Results {
  const full = `${mechanism.id} ${key}`;
  const form =
    formOf(mechanism, "recurrent") ?? formOf(mechanism, "parallel") ?? formOf(mechanism, "chunkwise")!;
  const found =
    truths.get(full) ?? differentiate(hostDevice({ dtype: "float64" }), mechanism, form, inputs, call);
  truths.set(full, found);
  return found;
}

/** Inputs that an output cannot but depend on. */
function needed(mechanism: Mechanism, inputs: Inputs): string[] {
  return Object.keys(inputs).filter((name) => {
    const isAsked = mechanism.inputs[name]!.optional !== true || isCarried(mechanism, name);
    return isAsked && isDifferentiable(mechanism, name);
  });
}

export const gradientsCheck: Check = {
  name: "gradients",
  sentence: "Gradients by every input and by the carried state are those of float64.",
  applies: ({ name }) => name !== "step",
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    for (const carried of [true, false]) {
      const inputs = draw(mechanism, sizes, { carried });
      const expected = truthOf(mechanism, inputs, `usual ${carried}`, exact(mechanism));
      const got = differentiate(device, mechanism, form, inputs, exact(mechanism));
      assert.deepEqual(Object.keys(got).sort(), Object.keys(expected).sort());
      for (const name of needed(mechanism, inputs)) assert.ok(got[name], `no gradient of ${name}`);
      agree(got, expected, gradientBound(mechanism, sizes), `carried ${carried}`);
    }
  },
};

export const fullGradientsCheck: Check = {
  name: "full gradients",
  sentence: "The same where every token sees all, queries of another length included.",
  applies: ({ mechanism, name }) => mechanism.traits.full && name !== "step",
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    const inputs = draw(mechanism, sizes, { queryTime: 9, carried: false });
    const call = { ...exact(mechanism), causal: false };
    const expected = truthOf(mechanism, inputs, "full", call);
    agree(
      differentiate(device, mechanism, form, inputs, call),
      expected,
      gradientBound(mechanism, sizes),
      "full",
    );
  },
};

/** The step of central differences; their error is near its square and near eps over it: both stay under 1e-7. */
const step = 1e-5;
const bound = 1e-6;

export const finiteDifferencesCheck: Check = {
  name: "finite differences",
  sentence: "Gradients along random directions agree with central differences in float64.",
  applies: ({ name, target }) => name !== "step" && target.name === "host",
  async run({ mechanism, form }) {
    const { traits } = mechanism;
    for (const causal of [true, false].filter((one) => (one ? traits.causal : traits.full))) {
      const drawn = draw(mechanism, { ...usual, T: 21 }, { carried: causal || !hasCache(mechanism) });
      const device = hostDevice({ dtype: "float64" });
      const inputs = Object.fromEntries(
        Object.entries(drawn).map(([name, { data, shape }]) => [
          name,
          tensor(device, data, shape, { requiresGrad: isDifferentiable(mechanism, name) }),
        ]),
      );
      const directions = new Map<number, Float64Array>();
      const direction = (stream: number, element: number): number => {
        const known = directions.get(stream) ?? new Random(3, stream).normal(new Float64Array(2 ** 12));
        directions.set(stream, known);
        return known[element % known.length]!;
      };
      const call = (given: Parameters<typeof form>[0]) => {
        const outputs = form(given, { eps: 0, causal });
        const names = differentiableOutputs(mechanism, outputs);
        return Object.fromEntries(names.map((name) => [name, outputs[name]]));
      };
      for (const row of gradCheck(device, call, inputs, direction, step)) {
        const what = `${row.input}, causal ${causal}: derivative ${row.analytic}, differences say ${row.numeric}`;
        assert.ok(row.relativeError <= bound, what);
      }
    }
  },
};
