import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeTargets, targets, wasmTarget } from "../../../tests/conformance/targets.ts";
import { relativeError, tolerance } from "../../../tests/conformance/tolerance.ts";
import type { Arrays, Job } from "../../../tests/recurrence/add-job.ts";
import { forward, randomJob, steps } from "../../../tests/recurrence/add-job.ts";
import { hostDevice } from "../../device/host/host.ts";

after(closeTargets);

const truth = hostDevice();
const decays = ["none", "head", "scalar", "key"] as const;
const sides = [1, 3, 33, 65] as const;

/** Every sum of these jobs has at most K terms in a score and T in a state. */
function check(got: Arrays, expected: Arrays, job: Job, what: string): void {
  const bound = tolerance("float32", Math.max(job.keyWidth, job.time, 4)) / 2;
  for (const name of Object.keys(expected)) {
    const error = relativeError(got[name]!, expected[name]!);
    assert.ok(error <= bound, `${what} ${name}: ${error} > ${bound}`);
  }
}

/** Decay × normaliser, one after another. */
function* rules(scale: number): Generator<Job["rule"]> {
  for (const decay of decays)
    for (const normalize of [false, true]) yield { decay, normalize, scale, eps: 1e-6 };
}

test("odd widths agree in every form, rows apart and grouped heads included", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    let seed = 0;
    for (const keyWidth of sides) {
      for (const valueWidth of sides) {
        for (const rule of rules(keyWidth ** -0.5)) {
          const shape = { batch: 2, time: 21, heads: 1, valueHeads: 3, keyWidth, valueWidth };
          const job = randomJob({ ...shape, rule, chunk: 8, gap: 5 }, { seed: ++seed });
          const expected = forward(truth, "recurrent", job);
          const what = `${target.name} ${JSON.stringify(rule)} K ${keyWidth} V ${valueWidth}`;
          for (const form of ["chunkwise", "recurrent", "parallel"] as const)
            check(forward(device, form, job), expected, job, `${what} ${form}`);
          check(
            steps(device, job, 3, (b) => 2 - b),
            expected,
            job,
            `${what} step`,
          );
        }
      }
    }
  }
});

test("chunks of any length agree, lengths of 0 and 1 included", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    for (const time of [0, 1, 2, 65]) {
      for (const rule of rules(1)) {
        const shape = { time, heads: 2, valueHeads: 2, keyWidth: 24, valueWidth: 20 };
        const job = randomJob({ ...shape, rule }, { seed: time + 3 });
        const expected = forward(truth, "recurrent", job);
        for (const chunk of [1, 3, 16, 32, 64, 100]) {
          const what = `${target.name} ${JSON.stringify(rule)} T ${time} C ${chunk}`;
          check(forward(device, "chunkwise", { ...job, chunk }), expected, job, what);
        }
      }
    }
  }
});

/** The part [from, to) of a job of one sequence along time, entering with the given states. */
function part(job: Job, from: number, to: number, state: Arrays): Job {
  const inputs: Arrays = { ...job.inputs };
  for (const name of ["q", "k", "v", "g"]) {
    const values = job.inputs[name];
    if (values === undefined || (name === "g" && job.rule.decay === "head")) continue;
    const width = values.length / job.time;
    inputs[name] = values.slice(from * width, to * width);
  }
  inputs.initialState = state.finalState ?? inputs.initialState!;
  if (job.rule.normalize) inputs.initialNormalizer = state.finalNormalizer ?? inputs.initialNormalizer!;
  return { ...job, time: to - from, inputs };
}

test("a sequence split anywhere carries its state on", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    for (const rule of rules(1)) {
      const shape = { time: 40, heads: 1, valueHeads: 2, keyWidth: 17, valueWidth: 19 };
      const job = randomJob({ ...shape, rule, chunk: 16 }, { seed: 5 });
      const whole = forward(truth, "recurrent", job);
      for (const form of ["chunkwise", "recurrent", "parallel"] as const) {
        for (const cut of [1, 16, 23, 39]) {
          const head = forward(device, form, part(job, 0, cut, {}));
          const tail = forward(device, form, part(job, cut, 40, head));
          const output = Float64Array.from([...head.output!, ...tail.output!]);
          check({ ...tail, output }, whole, job, `${target.name} ${form} ${rule.decay} cut ${cut}`);
        }
      }
    }
  }
});

test("packed sequences equal separate ones, empty and one-token members included", async () => {
  const cuSeqlens = [0, 5, 5, 6, 40, 40];
  for (const target of await targets()) {
    const device = await target.open(2);
    for (const rule of rules(1)) {
      const shape = { time: 40, heads: 1, valueHeads: 2, keyWidth: 17, valueWidth: 19, cuSeqlens };
      const job = randomJob({ ...shape, rule, chunk: 16, gap: 3 }, { seed: 6 });
      const perState = 2 * 17 * 19;
      for (const form of ["chunkwise", "recurrent", "parallel"] as const) {
        const got = forward(device, form, job);
        for (let n = 0; n < 5; n++) {
          const state = { finalState: job.inputs.initialState!.slice(n * perState, (n + 1) * perState) };
          const z = job.inputs.initialNormalizer?.slice(n * 34, (n + 1) * 34);
          const { cuSeqlens: _, ...alone } = part(job, cuSeqlens[n]!, cuSeqlens[n + 1]!, {
            ...state,
            ...(z && { finalNormalizer: z }),
          });
          const expected = forward(device, form, alone);
          const rows = got.output!.slice(cuSeqlens[n]! * 38, cuSeqlens[n + 1]! * 38);
          assert.deepEqual(rows, expected.output, `${target.name} ${form} ${rule.decay} sequence ${n}`);
          assert.deepEqual(got.finalState!.slice(n * perState, (n + 1) * perState), expected.finalState);
          if (z) assert.deepEqual(got.finalNormalizer!.slice(n * 34, (n + 1) * 34), expected.finalNormalizer);
        }
      }
    }
  }
});

test("the output of a prefix does not depend on what follows, bit for bit", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    for (const rule of rules(1)) {
      const shape = { time: 50, heads: 2, valueHeads: 4, keyWidth: 18, valueWidth: 21 };
      const job = randomJob({ ...shape, rule }, { seed: 7 });
      for (const form of ["chunkwise", "recurrent", "parallel"] as const) {
        const whole = forward(device, form, job);
        for (const length of [1, 15, 16, 17, 33, 49]) {
          const prefix = forward(device, form, part(job, 0, length, {}));
          assert.deepEqual(
            prefix.output,
            whole.output!.slice(0, length * 84),
            `${target.name} ${form} ${rule.decay} ${length}`,
          );
        }
      }
    }
  }
});

test("bits do not depend on the number of threads or on value columns apart", async () => {
  for (const tier of ["a", "b"] as const) {
    const [one, two, three] = await Promise.all([1, 2, 3].map((threads) => wasmTarget(tier).open(threads)));
    for (const rule of rules(1)) {
      for (const valueHeads of [1, 3]) {
        const shape = { time: 70, heads: 1, valueHeads, keyWidth: 30, valueWidth: 70 };
        const job = randomJob({ ...shape, rule, gap: 1 }, { seed: 8 });
        for (const form of ["chunkwise", "recurrent", "parallel", "full"] as const) {
          if (form === "full" && rule.decay !== "none") continue;
          const expected = forward(one!, form, job);
          assert.deepEqual(forward(two!, form, job), expected);
          assert.deepEqual(forward(three!, form, job), expected);
        }
      }
    }
  }
});

test("gates of 0 and of -90 on some or all tokens stay finite and equal the loops", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    for (const rule of rules(1)) {
      if (rule.decay === "none") continue;
      for (const pattern of [[0], [-90], [0, -90], [-0.01, -0.01, -90, -1e-6], [-20, 0, 0, 0, 0]]) {
        const shape = { time: 45, heads: 2, valueHeads: 2, keyWidth: 16, valueWidth: 16 };
        const job = randomJob({ ...shape, rule }, { seed: 9 });
        const g = job.inputs.g!.map((_, i) => pattern[i % pattern.length]!);
        const extreme = { ...job, inputs: { ...job.inputs, g } };
        const expected = forward(truth, "recurrent", extreme);
        for (const form of ["chunkwise", "recurrent", "parallel"] as const)
          check(
            forward(device, form, extreme),
            expected,
            job,
            `${target.name} ${form} ${rule.decay} ${pattern}`,
          );
      }
    }
  }
});

test("scores of 1e8 and of 1e-8 keep their relative accuracy", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    for (const rule of rules(1)) {
      for (const size of [1e4, 1e-4]) {
        const shape = { time: 33, heads: 1, valueHeads: 1, keyWidth: 16, valueWidth: 16 };
        const job = randomJob({ ...shape, rule: { ...rule, eps: 0 } }, { seed: 10, state: false });
        const grown = (name: string) => job.inputs[name]!.map((x) => Math.fround(x * size));
        const extreme = { ...job, inputs: { ...job.inputs, q: grown("q"), k: grown("k") } };
        const expected = forward(truth, "recurrent", extreme);
        check(forward(device, "chunkwise", extreme), expected, job, `${target.name} ${rule.decay} ${size}`);
      }
    }
  }
});

test("a normaliser of zero gives zeros", async () => {
  for (const target of await targets()) {
    const device = await target.open(2);
    const rule = { decay: "none", normalize: true, scale: 1, eps: 0 } as const;
    const job = randomJob({ time: 5, keyWidth: 3, valueWidth: 2, rule }, { state: false });
    const zero = { ...job, inputs: { ...job.inputs, k: new Float64Array(15) } };
    for (const form of ["chunkwise", "recurrent", "parallel", "full"] as const)
      assert.deepEqual(forward(device, form, zero).output, new Float64Array(10), `${target.name} ${form}`);
  }
});

test("T 16384 does not drift with slow, mixed and no decay", async () => {
  const [target] = (await targets()).slice(-1);
  const device = await target!.open(2);
  for (const decay of decays) {
    for (const [strength, normalize] of [
      [1e-4, false],
      [1e-4, true],
      [0.5, false],
    ] as const) {
      const rule = { decay, normalize, scale: 1, eps: 1e-6 };
      const shape = { time: 16384, heads: 1, valueHeads: 2, keyWidth: 8, valueWidth: 8 };
      const job = randomJob({ ...shape, rule }, { seed: 11, strength });
      const expected = forward(truth, "recurrent", job);
      for (const form of ["chunkwise", "recurrent"] as const) {
        const got = forward(device, form, job);
        for (const name of Object.keys(expected)) {
          const error = relativeError(got[name]!, expected[name]!);
          const bound = 4e-6;
          assert.ok(error <= bound, `${form} ${decay} ${strength} ${normalize} ${name}: ${error}`);
        }
      }
    }
  }
});
