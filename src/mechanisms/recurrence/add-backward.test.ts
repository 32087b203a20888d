import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeTargets, targets, wasmTarget } from "../../../tests/conformance/targets.ts";
import { relativeError, tolerance } from "../../../tests/conformance/tolerance.ts";
import type { Arrays, Job } from "../../../tests/recurrence/add-job.ts";
import {
  backward,
  forward,
  randomCotangents,
  randomJob,
  uniform,
} from "../../../tests/recurrence/add-job.ts";
import { hostDevice } from "../../device/host/host.ts";

after(closeTargets);

const truth = hostDevice();
const decays = ["none", "head", "scalar", "key"] as const;

function* rules(scale: number): Generator<Job["rule"]> {
  for (const decay of decays)
    for (const normalize of [false, true]) yield { decay, normalize, scale, eps: 1e-6 };
}

const inner = (a: Arrays, b: Arrays): number =>
  Object.keys(b).reduce((sum, name) => sum + b[name]!.reduce((s, x, i) => s + x * a[name]![i]!, 0), 0);

/** d/dx of Σ output·cotangent along a random direction of one input, by central differences. */
function difference(
  job: Job,
  form: "recurrent" | "full",
  cotangents: Arrays,
  name: string,
  along: Float64Array,
) {
  const step = 1e-5;
  const moved = (sign: number): number => {
    const values = job.inputs[name]!.map((x, i) => x + sign * step * along[i]!);
    return inner(forward(truth, form, { ...job, inputs: { ...job.inputs, [name]: values } }), cotangents);
  };
  return (moved(1) - moved(-1)) / (2 * step);
}

function checkDifferences(job: Job, full: boolean): void {
  const cotangents = randomCotangents(job);
  const got = backward(truth, job, cotangents, full);
  const next = uniform(3);
  for (const name of Object.keys(job.inputs)) {
    for (let i = 0; i < 3; i++) {
      const along = job.inputs[name]!.map(() => next());
      const expected = difference(job, full ? "full" : "recurrent", cotangents, name, along);
      const slope = along.reduce((sum, x, j) => sum + x * got[name]![j]!, 0);
      const size = Math.sqrt(inner({ a: got[name]! }, { a: got[name]! }) * inner({ a: along }, { a: along }));
      const what = `${JSON.stringify(job.rule)} full ${full} ${name}: ${slope}, by differences ${expected}`;
      assert.ok(Math.abs(slope - expected) <= 1e-8 * size, what);
    }
  }
}

test("every gradient of the loops equals finite differences", () => {
  for (const rule of rules(0.5)) {
    const shape = { batch: 2, time: 7, heads: 2, valueHeads: 4, keyWidth: 5, valueWidth: 3 };
    checkDifferences(randomJob({ ...shape, rule }), false);
    const packed = { ...shape, batch: 1, cuSeqlens: [0, 3, 3, 4, 7] };
    checkDifferences(randomJob({ ...packed, rule }), false);
    if (rule.decay !== "none") continue;
    checkDifferences(randomJob({ ...shape, queryTime: 4, rule }), true);
    checkDifferences(randomJob({ ...packed, queryTime: 6, cuQueries: [0, 1, 3, 6, 6], rule }), true);
  }
});

/** Sums have at most T·r or K or V terms; gradients through a normaliser are a few products deeper. */
function check(got: Arrays, expected: Arrays, job: Job, what: string): void {
  const terms = Math.max(job.keyWidth, job.valueWidth, (job.time * job.valueHeads) / job.heads, 4);
  for (const name of Object.keys(expected)) {
    const error = relativeError(got[name]!, expected[name]!);
    const bound = tolerance("float32", terms);
    assert.ok(error <= bound, `${what} ${name}: ${error} > ${bound}`);
  }
}

test("gradients agree at odd widths, rows apart, grouped heads included", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    let seed = 20;
    for (const [keyWidth, valueWidth] of [
      [2, 1],
      [3, 33],
      [33, 3],
      [65, 64],
      [16, 65],
    ] as const) {
      for (const rule of rules(keyWidth ** -0.5)) {
        const shape = { batch: 2, time: 21, heads: 1, valueHeads: 3, keyWidth, valueWidth };
        const job = randomJob({ ...shape, rule, chunk: 8, gap: 5 }, { seed: ++seed });
        const cotangents = randomCotangents(job, seed);
        const what = `${target.name} ${JSON.stringify(rule)} K ${keyWidth} V ${valueWidth}`;
        check(backward(device, job, cotangents), backward(truth, job, cotangents), job, what);
      }
    }
  }
});

test("gradients agree for chunks of any length, lengths of 0 and 1 included", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    for (const time of [0, 1, 2, 65]) {
      for (const rule of rules(1)) {
        const shape = { time, heads: 2, valueHeads: 2, keyWidth: 24, valueWidth: 20 };
        const job = randomJob({ ...shape, rule }, { seed: time + 3 });
        const cotangents = randomCotangents(job);
        const expected = backward(truth, job, cotangents);
        for (const chunk of [1, 3, 16, 32, 64, 100]) {
          const what = `${target.name} ${JSON.stringify(rule)} T ${time} C ${chunk}`;
          check(backward(device, { ...job, chunk }, cotangents), expected, job, what);
        }
      }
    }
  }
});

test("gradients of packed sequences equal those of separate ones", async () => {
  const cuSeqlens = [0, 5, 5, 6, 40, 40];
  for (const target of await targets()) {
    const device = await target.open(2);
    for (const rule of rules(1)) {
      const shape = { time: 40, heads: 1, valueHeads: 2, keyWidth: 17, valueWidth: 19 };
      const job = randomJob({ ...shape, rule, chunk: 16, gap: 3, cuSeqlens }, { seed: 6 });
      const cotangents = randomCotangents(job);
      check(
        backward(device, job, cotangents),
        backward(truth, job, cotangents),
        job,
        `${target.name} ${rule.decay}`,
      );
    }
  }
});

test("gradients keep their bits whatever the number of threads", async () => {
  for (const tier of ["a", "b"] as const) {
    const [one, two, three] = await Promise.all([1, 2, 3].map((threads) => wasmTarget(tier).open(threads)));
    for (const rule of rules(1)) {
      const shape = { time: 70, heads: 1, valueHeads: 5, keyWidth: 30, valueWidth: 20 };
      const job = randomJob({ ...shape, rule, gap: 1 }, { seed: 8 });
      const cotangents = randomCotangents(job);
      const expected = backward(one!, job, cotangents);
      assert.deepEqual(backward(two!, job, cotangents), expected);
      assert.deepEqual(backward(three!, job, cotangents), expected);
    }
  }
});

test("gate gradients at 0 and at -90 keep their relative accuracy", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    for (const rule of rules(1)) {
      if (rule.decay === "none" || rule.normalize) continue;
      for (const pattern of [[0], [-90], [-30], [0, -90], [-0.01, -0.01, -90, -1e-6], [-20, 0, 0, 0, 0]]) {
        const shape = { time: 45, heads: 2, valueHeads: 2, keyWidth: 16, valueWidth: 16 };
        const job = randomJob({ ...shape, rule }, { seed: 9 });
        const g = job.inputs.g!.map((_, i) => pattern[i % pattern.length]!);
        const extreme = { ...job, inputs: { ...job.inputs, g } };
        const cotangents = randomCotangents(job);
        const expected = backward(truth, extreme, cotangents);
        const got = backward(device, extreme, cotangents);
        // exp(-90) is below the smallest normal float32: what it alone lets through is 0 here.
        for (const [name, values] of Object.entries(expected)) {
          if (values.some((x) => Math.abs(x) > 1e-35)) continue;
          assert.ok(got[name]!.every((x) => Math.abs(x) < 1e-35));
          expected[name] = got[name]!;
        }
        check(got, expected, job, `${target.name} ${rule.decay} ${pattern}`);
      }
    }
  }
});

test("the form that is not causal agrees with the loops, queries of another length included", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    for (const normalize of [false, true]) {
      for (const [time, queryTime] of [
        [50, 37],
        [1, 70],
        [40, 0],
      ] as const) {
        const rule = { decay: "none", normalize, scale: 0.3, eps: 1e-6 } as const;
        const shape = { batch: 2, time, queryTime, heads: 2, valueHeads: 6, keyWidth: 19, valueWidth: 33 };
        const job = randomJob({ ...shape, rule, gap: 2 }, { seed: 12 });
        const cotangents = randomCotangents(job);
        const what = `${target.name} ${normalize} Tk ${time} Tq ${queryTime}`;
        check(forward(device, "full", job), forward(truth, "full", job), job, what);
        check(backward(device, job, cotangents, true), backward(truth, job, cotangents, true), job, what);
        const ends = { cuSeqlens: [0, 3, 3, time], cuQueries: [0, 0, Math.min(5, queryTime), queryTime] };
        if (time < 3) continue;
        const packed = randomJob({ ...shape, batch: 1, rule, ...ends }, { seed: 13 });
        const given = randomCotangents(packed);
        check(forward(device, "full", packed), forward(truth, "full", packed), packed, what);
        check(
          backward(device, packed, given, true),
          backward(truth, packed, given, true),
          packed,
          `${what} packed`,
        );
      }
    }
  }
});
