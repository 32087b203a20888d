/** Members of the family that are linear attention without map and normaliser for some of their inputs. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { hostDevice } from "../../src/device/host/host.ts";
import { linearForms } from "../../src/mechanisms/linear/forms.ts";
import { formNames } from "../../src/mechanisms/mechanism.ts";
import { mechanism, mechanisms } from "../../src/mechanisms/registry.ts";
import { axisKeys, unitRows, zeroValues } from "../../src/mechanisms/values.ts";
import { draw, type Inputs, type Sizes, usual } from "../conformance/mechanisms/draw.ts";
import { agree, evaluate, formOf, outputBound } from "../conformance/mechanisms/subject.ts";
import { closeTargets, targets } from "../conformance/targets.ts";

after(closeTargets);

const bare = linearForms("identity", { normalize: false });
const double = hostDevice({ dtype: "float64" });
after(() => double.close());

interface Case {
  readonly id: string;
  readonly when: string;
  readonly sizes?: { readonly T: number; readonly K: number };
  readonly inputs: (own: Inputs) => { readonly own: Inputs; readonly linear: Inputs };
  readonly scale?: "K^-0.5";
}

const basic = ({ q, k, v, initialState }: Inputs): Inputs => ({
  ...{ q: q!, k: k!, v: v! },
  ...(initialState && { initialState }),
});

const cases: readonly Case[] = [
  ...["retention", "lightning", "mamba2", "gla"].map(
    (id): Case => ({
      ...{ id, when: "g = 0" },
      ...(["retention", "gla"].includes(id) && { scale: "K^-0.5" as const }),
      inputs: (own) => ({ own: { ...own, g: zeroValues(own["g"]!.shape) }, linear: basic(own) }),
    }),
  ),
  {
    ...{ id: "cosine", when: "queries and keys have unit length" },
    inputs: (own) => ({ own, linear: { ...basic(own), q: unitRows(own["q"]!), k: unitRows(own["k"]!) } }),
  },
  ...["delta", "gated-delta", "kda"].map(
    (id): Case => ({
      ...{ id, when: "keys are orthonormal, β = 1, g = 0, the state begins empty and T ≤ K" },
      ...{ sizes: { T: 8, K: 16 }, scale: "K^-0.5" },
      inputs: ({ initialState: _, ...own }) => {
        const k = axisKeys(own["k"]!.shape);
        const beta = { shape: own["beta"]!.shape, data: own["beta"]!.data.map(() => 1) };
        const g = own["g"] && { g: zeroValues(own["g"].shape) };
        return { own: { ...own, k, beta, ...g }, linear: { q: own["q"]!, k, v: own["v"]! } };
      },
    }),
  ),
];

for (const target of await targets()) {
  for (const { id, when, sizes, inputs, scale } of cases) {
    const own = mechanism(id);
    for (const name of formNames) {
      test(`${id} ${name} is linear attention without its normaliser where ${when}, on ${target.name}`, async () => {
        const all: Sizes = { ...usual, ...sizes };
        const given = inputs(draw(own, all));
        const call = scale === undefined ? {} : { scale: all["K"]! ** -0.5 };
        const expected = evaluate(double, bare.recurrent, given.linear, call);
        const device = await target.open(1);
        const { output, finalState } = evaluate(device, formOf(own, name)!, given.own);
        agree({ output: output!, finalState: finalState! }, expected, outputBound(own, all), when);
      });
    }
  }
}

test("the reductions that papers state are declared", () => {
  const declared = mechanisms.flatMap(({ id, reductions }) => reductions.map(({ to }) => `${id} ${to}`));
  for (const pair of [
    "kda gated-delta",
    "gated-delta delta",
    "gla mamba2",
    "retention mamba2",
    "mamba2 lightning",
  ])
    assert.ok(declared.includes(pair), pair);
});
