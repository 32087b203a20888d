import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeTargets, targets } from "../../../tests/conformance/targets.ts";
import { relativeError, tolerance } from "../../../tests/conformance/tolerance.ts";
import type { Arrays, Job } from "../../../tests/recurrence/add-job.ts";
import { backward, forward, randomCotangents, randomJob, steps } from "../../../tests/recurrence/add-job.ts";
import { hostDevice } from "../../device/host/host.ts";
import { featureMaps } from "../feature-maps/index.ts";
import type { Pointwise } from "../feature-maps/pointwise.ts";

after(closeTargets);

const truth = hostDevice();
const maps = featureMaps.flatMap((map) => map.pointwise ?? []);
const decays = ["none", "head", "scalar", "key"] as const;

/** Jobs under a map: rows apart, grouped heads, widths that fill neither vectors nor tiles. Positive values all over. */
function* jobsOf(map: Pointwise, full = false): Generator<Job> {
  for (const decay of full ? (["none"] as const) : decays) {
    for (const normalize of [false, true]) {
      const rule = { decay, normalize, scale: 0.3, eps: 1e-6, map };
      const shape = { batch: 2, time: 37, heads: 2, valueHeads: 4, keyWidth: 19, valueWidth: 11, gap: 3 };
      yield randomJob({ ...shape, rule, chunk: 8, ...(full && { queryTime: 41 }) }, { seed: map.code });
    }
  }
}

/** The same job with queries and keys that are mapped already. */
function mapped({ rule: { map, ...rule }, inputs, ...job }: Job): Job {
  const [q, k] = [inputs.q!, inputs.k!].map((x) => x.map(map!.value));
  return { ...job, rule, inputs: { ...inputs, q: q!, k: k! } };
}

function check(got: Arrays, expected: Arrays, job: Job, what: string): void {
  const terms = Math.max(job.keyWidth, job.valueWidth, (job.time * job.valueHeads) / job.heads);
  assert.deepEqual(Object.keys(got), Object.keys(expected));
  for (const name of Object.keys(expected)) {
    const error = relativeError(got[name]!, expected[name]!);
    assert.ok(error <= tolerance("float32", terms), `${what} ${name}: ${error}`);
  }
}

test("slopes of maps are functions of their values, by differences", () => {
  for (const { value, slope, code } of maps) {
    for (const x of [-9, -2, -0.7, -0.01, 0.01, 0.4, 1, 6]) {
      const expected = (value(x + 1e-5) - value(x - 1e-5)) / 2e-5;
      assert.ok(Math.abs(slope(value(x)) - expected) <= 1e-8 * Math.max(1, expected), `${code} at ${x}`);
    }
  }
});

test("rows that are mapped as they are read give what mapped rows give", async () => {
  for (const target of [{ name: "host", open: () => truth }, ...(await targets())]) {
    const device = await target.open(2);
    for (const map of maps) {
      for (const job of jobsOf(map)) {
        const what = `${target.name} ${JSON.stringify(job.rule)}`;
        const expected = forward(truth, "recurrent", mapped(job));
        check(forward(device, "chunkwise", job), expected, job, `${what} chunkwise`);
        check(forward(device, "recurrent", job), expected, job, `${what} recurrent`);
        check(
          steps(device, job, 3, (b) => 2 - b),
          expected,
          job,
          `${what} step`,
        );
      }
      for (const job of jobsOf(map, true)) {
        const expected = forward(truth, "full", mapped(job));
        check(forward(device, "full", job), expected, job, `${target.name} full`);
      }
    }
  }
});

test("gradients go through the map", async () => {
  for (const target of [{ name: "host", open: () => truth }, ...(await targets())]) {
    const device = await target.open(2);
    for (const map of maps) {
      for (const full of [false, true]) {
        for (const job of jobsOf(map, full)) {
          const cotangents = randomCotangents(job);
          const other = mapped(job);
          const expected = backward(truth, other, cotangents, full);
          for (const name of ["q", "k"]) {
            const slopes = other.inputs[name]!.map(map.slope);
            expected[name] = expected[name]!.map((x, i) => x * slopes[i]!);
          }
          const what = `${target.name} ${JSON.stringify(job.rule)} full ${full}`;
          check(backward(device, job, cotangents, full), expected, job, what);
        }
      }
    }
  }
});

test("the parallel form takes no map", () => {
  const [job] = jobsOf(maps[0]!);
  assert.throws(() => forward(truth, "parallel", job!), /\[recurrence.parallel\].*expected no map, got one/);
});
