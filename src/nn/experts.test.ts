import assert from "node:assert/strict";
import { test } from "node:test";
import { gradCheck } from "../autograd/grad-check.ts";
import { scope } from "../autograd/scope.ts";
import { gradients, noGrad } from "../autograd/tape.ts";
import { tensor } from "../autograd/tensor.ts";
import { hostDevice } from "../device/host/host.ts";
import { Random } from "../tensor/random.ts";
import { Experts, type ExpertsOptions } from "./experts.ts";
import { initialize } from "./module.ts";
import { chooseExperts } from "./routing.ts";

const device = hostDevice({ dtype: "float64", poison: true });
const [tokens, width] = [7, 5];

function expertsOf(options: Partial<ExpertsOptions>): Experts {
  const experts = new Experts(width, { kind: "experts", experts: 6, perToken: 2, width: 4, ...options });
  initialize(experts, device, new Random(1));
  const { correction } = experts;
  // Large enough to change who is chosen.
  correction?.set(device, new Random(2).normal(new Float64Array(correction.size), 0, 0.5));
  return experts;
}

const x = tensor(device, new Random(3).normal(new Float64Array(tokens * width)), [1, tokens, width], {
  requiresGrad: true,
});

type Matrix = { readonly rows: readonly (readonly number[])[] };

function matrix(parameter: { value: { dataSync(): ArrayLike<number>; shape: readonly number[] } }): Matrix {
  const values = Array.from(parameter.value.dataSync());
  const columns = parameter.value.shape[1]!;
  const rows = parameter.value.shape[0]!;
  return { rows: Array.from({ length: rows }, (_, r) => values.slice(r * columns, (r + 1) * columns)) };
}

const times = ({ rows }: Matrix, v: readonly number[]): number[] =>
  rows.map((row) => row.reduce((sum, w, i) => sum + w * v[i]!, 0));
const sigmoid = (z: number): number => 1 / (1 + Math.exp(-z));

function mlp(expert: Experts["experts"][number], v: readonly number[]): number[] {
  const gate = times(matrix(expert.gate.weight), v).map((z) => z * sigmoid(z));
  const up = times(matrix(expert.up.weight), v);
  return times(
    matrix(expert.down.weight),
    gate.map((g, i) => g * up[i]!),
  );
}

/** The mixture in plain loops, from the papers alone. */
function reference(model: Experts, options: Partial<ExpertsOptions>): { y: number[]; balance: number } {
  const { experts: count = 6, perToken = 2, groups = 1, groupsPerToken = groups } = options;
  const values = Array.from(x.dataSync());
  const correction = model.correction ? Array.from(model.correction.value.dataSync()) : undefined;
  const visits = new Array<number>(count).fill(0);
  const means = new Array<number>(count).fill(0);
  const y: number[] = [];
  for (let t = 0; t < tokens; t++) {
    const v = values.slice(t * width, (t + 1) * width);
    const logits = times(matrix(model.router.weight), v);
    const total = logits.reduce((sum, z) => sum + Math.exp(z), 0);
    const scores = logits.map((z) => (options.router === "sigmoid" ? sigmoid(z) : Math.exp(z) / total));
    const keys = scores.map((score, e) => score + (correction?.[e] ?? 0));
    const size = count / groups;
    const strength = Array.from({ length: groups }, (_, g) =>
      keys
        .slice(g * size, (g + 1) * size)
        .sort((a, b) => b - a)
        .slice(0, 2)
        .reduce((a, b) => a + b, 0),
    );
    const open = strength
      .map((value, g) => ({ value, g }))
      .sort((a, b) => b.value - a.value)
      .slice(0, groupsPerToken)
      .map(({ g }) => g);
    const chosen = keys
      .map((key, e) => ({ key, e }))
      .filter(({ e }) => open.includes(Math.floor(e / size)))
      .sort((a, b) => b.key - a.key)
      .slice(0, perToken)
      .map(({ e }) => e);
    const sum = chosen.reduce((s, e) => s + scores[e]!, 0);
    const out = new Array<number>(width).fill(0);
    for (const e of chosen) {
      visits[e]!++;
      const share = options.renormalize === false ? scores[e]! : scores[e]! / sum;
      for (const [i, value] of mlp(model.experts[e]!, v).entries())
        out[i]! += share * (options.routedScale ?? 1) * value;
    }
    for (let e = 0; e < count; e++) means[e]! += scores[e]! / tokens;
    if (model.shared !== undefined) {
      const gate = model.sharedGate ? sigmoid(times(matrix(model.sharedGate.weight), v)[0]!) : 1;
      for (const [i, value] of mlp(model.shared, v).entries()) out[i]! += gate * value;
    }
    y.push(...out);
  }
  const balance = means.reduce((s, mean, e) => s + (count * mean * visits[e]!) / (tokens * perToken), 0);
  return { y, balance };
}

const kinds: Readonly<Record<string, Partial<ExpertsOptions>>> = {
  "softmax, renormalised": {},
  "softmax, as it is": { renormalize: false, perToken: 3 },
  "sigmoid with correction": { router: "sigmoid", routedScale: 2.5 },
  "sigmoid with groups": { router: "sigmoid", groups: 3, groupsPerToken: 1 },
  "a shared expert": { sharedWidth: 3 },
  "a gated shared expert": { sharedWidth: 3, sharedGate: true, router: "sigmoid" },
};

for (const [name, options] of Object.entries(kinds)) {
  test(`experts, ${name}: output, balance and gradients are those of plain loops`, () => {
    const model = expertsOf(options);
    const expected = reference(model, options);
    const { y, balance } = scope(device, () => {
      const result = model.forward(x, true);
      return { y: [...result.y.dataSync()], balance: result.balance!.dataSync()[0]! };
    });
    for (const [i, value] of expected.y.entries())
      assert.ok(Math.abs(y[i]! - value) <= 1e-12, `${name} at ${i}`);
    assert.ok(
      Math.abs(balance - expected.balance) <= 1e-12,
      `balance ${balance}, expected ${expected.balance}`,
    );
    x.clearGrad();
    const rows = gradCheck(
      device,
      (inputs) => ({ y: model.forward(inputs["x"]!, true).y }),
      { x },
      (stream, i) => Math.cos(17 * stream + 3 * i),
      1e-6,
    );
    for (const row of rows) assert.ok(row.relativeError <= 1e-6, JSON.stringify(row));
    checkBalanceGradient(model);
    const routed = model.router.weight.value.grad;
    assert.ok(
      routed?.dataSync().some((value) => value !== 0),
      "the router learns",
    );
    model.dispose();
  });
}

/** Outside training there is no balance loss, so its gradient is checked by hand. */
function checkBalanceGradient(model: Experts): void {
  const values = Float64Array.from(x.dataSync());
  const direction = values.map((_, i) => Math.cos(3 * i));
  const at = (step: number): number =>
    scope(device, () => {
      const moved = values.map((value, i) => value + step * direction[i]!);
      return model.forward(tensor(device, moved, [1, tokens, width]), true).balance!.dataSync()[0]!;
    });
  const numeric = (at(1e-6) - at(-1e-6)) / 2e-6;
  const analytic = scope(device, () => {
    const [gradient] = gradients([model.forward(x, true).balance!], [x]);
    return Float64Array.from(gradient!.dataSync()).reduce((sum, value, i) => sum + value * direction[i]!, 0);
  });
  assert.ok(Math.abs(analytic - numeric) <= 1e-7, `balance: ${analytic}, numeric ${numeric}`);
}

test("the balance loss is 1 when every expert is used alike, and grows when they are not", () => {
  const even = chooseExperts(Float64Array.from([0.6, 0.4, 0.4, 0.6]), undefined, { experts: 2, perToken: 1 });
  assert.deepEqual(
    even.visits.map((list) => [...list]),
    [[0], [1]],
  );
  const model = expertsOf({ perToken: 1 });
  // A router that prefers expert 2 whatever comes.
  const values = new Float64Array(6 * width);
  const first = Array.from(x.dataSync().slice(0, width));
  for (let i = 0; i < width; i++) values[2 * width + i] = 50 * first[i]!;
  model.router.weight.set(device, values);
  const one = tensor(device, Float64Array.from([...first, ...first]), [1, 2, width]);
  const { balance } = model.forward(one, true);
  assert.ok(Math.abs(balance!.dataSync()[0]! - 6) < 1e-9, "all visits and all scores at one of six");
  assert.equal(
    noGrad(() => model.forward(one, true).balance),
    undefined,
  );
  assert.equal(model.forward(one, false).balance, undefined);
  model.dispose();
});

test("equal scores go to the smaller number, and scores that are no numbers choose someone", () => {
  const choose = (scores: number[], options = {}) =>
    chooseExperts(Float64Array.from(scores), undefined, { experts: 4, perToken: 2, ...options });
  assert.deepEqual([...choose([1, 1, 1, 1]).scores], [0, 1]);
  assert.deepEqual([...choose([0, 3, 2, 2]).scores], [1, 2]);
  assert.deepEqual([...choose([9, 0, 2, 8], { groups: 2, groupsPerToken: 1 }).scores], [3, 2]);
  assert.equal(choose(new Array(4).fill(Number.NaN)).scores.length, 2);
  for (const bad of [{ perToken: 0 }, { perToken: 7 }, { groups: 4 }, { groups: 2, groupsPerToken: 3 }])
    assert.throws(() => expertsOf(bad), { code: "E_CONFIG", message: /a token visits some of the experts/ });
});
