import { hostDevice } from "../../../../src/device/host/host.ts";
import type { Mechanism } from "../../../../src/mechanisms/mechanism.ts";
import { draw, type Inputs, type Sizes, usual } from "../draw.ts";
import {
  agree,
  type Check,
  evaluate,
  formOf,
  hasCache,
  outputBound,
  type Results,
  usualCall,
} from "../subject.ts";

const known = new Map<string, Results>();

/** The float64 reference of a draw, computed once for all forms and devices. */
function referenceOf(
  mechanism: Mechanism,
  key: string,
  inputs: Inputs,
  causal = mechanism.traits.causal,
): Results {
  const full = `${mechanism.id} ${key}`;
  const found = known.get(full) ?? mechanism.reference(inputs, { causal });
  known.set(full, found);
  return found;
}

export const valuesCheck: Check = {
  name: "values",
  sentence: "Outputs and final state are those of the float64 reference, with and without a carried state.",
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    for (const carried of [true, false]) {
      const inputs = draw(mechanism, usual, { carried });
      const expected = referenceOf(mechanism, `usual ${carried}`, inputs);
      agree(
        evaluate(device, form, inputs, usualCall(mechanism)),
        expected,
        outputBound(mechanism, usual),
        `carried ${carried}`,
      );
    }
  },
};

export const doubleCheck: Check = {
  name: "double",
  sentence: "In float64 the form is the reference within 1e-12.",
  applies: ({ target }) => target.name === "host",
  async run({ mechanism, form }) {
    const inputs = draw(mechanism);
    const expected = referenceOf(mechanism, "usual true", inputs);
    const device = hostDevice({ dtype: "float64", poison: true });
    agree(evaluate(device, form, inputs, usualCall(mechanism)), expected, 1e-12, "float64");
  },
};

/** Lengths and widths around the sizes of vectors, tiles and chunks; heads in groups and alone. */
const oddSizes: readonly Sizes[] = [
  { B: 9, T: 1, H: 2, HV: 4, HQ: 4, HKV: 2, K: 1, V: 1, past: 1 },
  { B: 3, T: 2, H: 1, HV: 3, HQ: 3, HKV: 1, K: 3, V: 5, past: 0 },
  { B: 1, T: 65, H: 2, HV: 2, HQ: 2, HKV: 2, K: 5, V: 33, past: 3 },
  { B: 1, T: 16, H: 1, HV: 2, HQ: 2, HKV: 1, K: 17, V: 4, past: 16 },
  { B: 1, T: 33, H: 1, HV: 1, HQ: 1, HKV: 1, K: 16, V: 65, past: 33 },
];

export const oddSizesCheck: Check = {
  name: "odd sizes",
  sentence: "Any length and any width will do.",
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    for (const [i, sizes] of oddSizes.entries()) {
      // Positions in pairs: maps of some mechanisms want an even width.
      const inputs = draw(mechanism, sizes);
      const expected = referenceOf(mechanism, `odd ${i}`, inputs);
      agree(
        evaluate(device, form, inputs, usualCall(mechanism)),
        expected,
        outputBound(mechanism, sizes),
        JSON.stringify(sizes),
      );
    }
  },
};

export const fullCheck: Check = {
  name: "full",
  sentence:
    "Where every token sees all, queries of another length included, values are those of the reference.",
  applies: ({ mechanism, name }) => mechanism.traits.full && name !== "step",
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    for (const queryTime of [usual["T"]!, 5]) {
      const inputs = draw(mechanism, usual, { queryTime, carried: !hasCache(mechanism) });
      const expected = referenceOf(mechanism, `full ${queryTime}`, inputs, false);
      const got = evaluate(device, form, inputs, { causal: false });
      agree(got, expected, outputBound(mechanism, usual), `${queryTime} queries`);
    }
  },
};

export const chunksCheck: Check = {
  name: "chunk sizes",
  sentence: "Any chunk length gives the same values.",
  applies: ({ name }) => name === "chunkwise",
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    const inputs = draw(mechanism);
    const expected = referenceOf(mechanism, "usual true", inputs);
    for (const chunk of [1, 2, 7, 16, 32, 64, 999]) {
      const got = evaluate(device, form, inputs, { ...usualCall(mechanism), chunk });
      agree(got, expected, outputBound(mechanism, usual), `chunk ${chunk}`);
    }
  },
};

/** Decays so slow that a state remembers a thousand tokens: what multiplies one by a rounded factor shows. */
const slowest = 1e-3;

export const driftCheck: Check = {
  name: "drift",
  sentence: "After 16,384 tokens the output is still that of float64.",
  applies: ({ mechanism }) => mechanism.traits.constantState && formOf(mechanism, "recurrent") !== undefined,
  async run({ mechanism, name, form, target }) {
    const device = await target.open(1);
    // Every pair at once costs T²; single steps cost a dispatch each.
    const T = { recurrent: 16_384, chunkwise: 16_384, step: 2_048, parallel: 1_024 }[name];
    const sizes = { ...usual, B: 1, T, H: 1, HV: 1, K: 8, V: 4 };
    const drawn = draw(mechanism, sizes);
    const g = drawn["g"];
    const slow = g && { shape: g.shape, data: g.data.map((value) => Math.fround(value * slowest)) };
    const inputs = slow === undefined ? drawn : { ...drawn, g: slow };
    const truth = hostDevice({ dtype: "float64" });
    const key = `${mechanism.id} drift ${T}`;
    const expected = known.get(key) ?? evaluate(truth, formOf(mechanism, "recurrent")!, inputs);
    known.set(key, expected);
    const remembered = g === undefined ? T : Math.min(T, 2 / slowest);
    const bound = outputBound(mechanism, { ...sizes, T: remembered });
    agree(evaluate(device, form, inputs, usualCall(mechanism)), expected, bound, `T ${T}`);
  },
};
