import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeTargets, targets } from "../../../tests/conformance/targets.ts";
import { relativeError } from "../../../tests/conformance/tolerance.ts";
import type { Arrays, Job } from "../../../tests/recurrence/add-job.ts";
import { backward, forward, steps } from "../../../tests/recurrence/add-job.ts";
import type { Golden } from "../../../tests/recurrence/golden.ts";
import { goldenFiles } from "../../../tests/recurrence/golden.ts";
import type { Device } from "../../device/device.ts";
import { hostDevice } from "../../device/host/host.ts";

after(closeTargets);

/** What float32 may be off on these shapes, and float64. */
const bounds = {
  float32: { out: 2e-6, grad: 1e-5 },
  float64: { out: 1e-12, grad: 1e-12 },
} as const;

/** elu(x) + 1 and its derivative. */
const map = (x: number): number => (x < 0 ? Math.exp(x) : x + 1);
const slope = (x: number): number => (x < 0 ? Math.exp(x) : 1);

function jobOf(golden: Golden): Job {
  const { B, T, H, K, V } = golden.shape;
  const inputs: Arrays = {};
  for (const name of ["q", "k", "v", "g", "initialState", "initialNormalizer"]) {
    const values = golden.tensor(`in.${name}`);
    if (values === undefined) continue;
    inputs[name] = golden.featureMap === "elu+1" && "qk".includes(name) ? values.map(map) : values;
  }
  if (golden.op === "retention")
    inputs.g = Float64Array.from({ length: H }, (_, h) => Math.log1p(-(2 ** (-5 - h))));
  const decay = { linear: "none", retention: "head", "scalar-decay": "scalar", gla: "key" }[golden.op];
  return {
    ...{ batch: B, time: T, heads: H, valueHeads: H, keyWidth: K, valueWidth: V, inputs, chunk: 16 },
    rule: { decay: decay as Job["rule"]["decay"], normalize: golden.normalize, scale: golden.scale, eps: 0 },
  };
}

function compare(golden: Golden, kind: "out" | "grad", got: Arrays, device: Device, form: string): void {
  const bound = bounds[device.defaultDtype as "float32" | "float64"][kind];
  for (const [name, values] of Object.entries(got)) {
    const expected = golden.tensor(`${kind}.${name}`);
    if (expected === undefined) continue;
    const error = relativeError(values, expected);
    assert.ok(error <= bound, `${golden.file} ${form} ${kind}.${name}: ${error} > ${bound}`);
  }
}

function checkForms(golden: Golden, device: Device): void {
  const job = jobOf(golden);
  const forms = golden.causal ? (["chunkwise", "recurrent", "parallel"] as const) : (["full"] as const);
  for (const form of forms) compare(golden, "out", forward(device, form, job), device, form);
  if (golden.causal)
    compare(
      golden,
      "out",
      steps(device, job, job.batch + 2, (b) => b + 1),
      device,
      "step",
    );
  for (const chunk of [1, 3, 32, 100]) {
    if (golden.causal)
      compare(golden, "out", forward(device, "chunkwise", { ...job, chunk }), device, `chunk ${chunk}`);
  }
}

function checkGradients(golden: Golden, device: Device, chunk: number): void {
  const job = jobOf(golden);
  const cotangents: Arrays = { output: golden.tensor("ct.output")! };
  for (const name of ["finalState", "finalNormalizer"]) {
    const values = golden.tensor(`ct.${name}`);
    if (values !== undefined) cotangents[name] = values;
  }
  const got = backward(device, { ...job, chunk }, cotangents, !golden.causal);
  if (golden.featureMap === "elu+1") {
    for (const name of ["q", "k"]) {
      const raw = golden.tensor(`in.${name}`)!;
      got[name] = got[name]!.map((x, i) => x * slope(raw[i]!));
    }
  }
  compare(golden, "grad", got, device, `chunk ${chunk}`);
}

for (const golden of goldenFiles(["linear-", "retention-", "scalar-decay-", "gla-"])) {
  test(`${golden.file} holds in every form on every device`, async () => {
    for (const target of await targets()) checkForms(golden, await target.open(2));
    checkForms(golden, hostDevice());
  });

  test(`${golden.file} holds in every gradient on every device`, async () => {
    for (const target of await targets())
      for (const chunk of [5, 16, 32, 100]) checkGradients(golden, await target.open(2), chunk);
    checkGradients(golden, hostDevice(), 16);
  });
}
