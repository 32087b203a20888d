import assert from "node:assert/strict";
import { test } from "node:test";
import { scope } from "../autograd/scope.ts";
import { tensor } from "../autograd/tensor.ts";
import { hostDevice } from "../device/index.ts";
import { Linear } from "../nn/linear.ts";
import { initialize } from "../nn/module.ts";
import { square } from "../ops/activation/index.ts";
import { mean } from "../ops/reduce/index.ts";
import { Random } from "../tensor/random.ts";
import { WeightAverage } from "./average.ts";
import { type Task, train } from "./loop.ts";
import { Optimizer } from "./optimizers/optimizer.ts";
import { sgd } from "./optimizers/sgd.ts";
import { clockSchedule } from "./schedules.ts";

function job() {
  const device = hostDevice({ dtype: "float64" });
  const module = new Linear(3, 2);
  initialize(module, device, new Random(1));
  const task: Task<number> = {
    module,
    size: () => 1,
    loss: (batch) => mean(square(module.forward(tensor(device, [batch, 1, -1], [1, 3])))),
  };
  const optimizer = new Optimizer(sgd(), module.namedParameters(), { learningRate: 0.05 });
  return { device, module, task, optimizer };
}

test("an average follows the weights, evaluations see it, and training goes on from the weights", async () => {
  const { device, module, task, optimizer } = job();
  const average = new WeightAverage(module, 0.5);
  const { value } = module.weight;
  const expected = Float64Array.from(value.dataSync());
  const seen: number[] = [];
  let count = 0;
  const evaluate = (): number => {
    seen.push(value.dataSync()[0]!);
    return scope(device, () => task.loss(1, { training: false, random: new Random(0) }).dataSync()[0]!);
  };
  for await (const step of train(task, {
    ...{ device, optimizer, average, batches: (index: number) => index % 3, steps: 12 },
    ...{ evaluateEvery: 4, evaluate },
  })) {
    const decay = Math.min(0.5, (1 + count) / (10 + count++));
    for (const [i, x] of value.dataSync().entries()) expected[i]! += (1 - decay) * (x - expected[i]!);
    if (step.step % 4 === 0) assert.ok(Math.abs(seen.at(-1)! - expected[0]!) < 1e-12);
  }
  assert.notEqual(value.dataSync()[0], seen.at(-1));
  assert.equal(seen.length, 3);
  assert.equal(average.steps, 12);
  for (const [i, x] of [...average.values.get("weight")!.dataSync()].entries())
    assert.ok(Math.abs(x - expected[i]!) < 1e-12);
});

test("training stops when evaluations get no better", async () => {
  const { device, task, optimizer } = job();
  const scores = [3, 2, 2.5, 2.4, 1];
  const ends: unknown[] = [];
  for await (const step of train(task, {
    ...{ device, optimizer, batches: () => 1, steps: 50, patience: 2 },
    ...{ evaluateEvery: 5, evaluate: () => scores.shift()! },
  }))
    ends.push([step.step, step.end]);
  assert.deepEqual(ends.at(-1), [20, "patience"]);
});

test("timers and signals get their turn between steps", async () => {
  const { device, task, optimizer } = job();
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 30);
  await assert.rejects(
    async () => {
      const { signal } = controller;
      // Would go on for minutes if the timer had to wait for its end.
      const steps = 1_000_000;
      for await (const _ of train(task, { device, optimizer, batches: () => 1, steps, signal }));
    },
    { name: "AbortError" },
  );
});

test("a rate by the clock falls with the seconds, those before a resume included, and ends the run", async () => {
  const schedule = clockSchedule({ seconds: 10, warmup: 2, floor: 0.1 });
  assert.equal(schedule(1, 0), 0.5);
  assert.equal(schedule(2, 0), 1);
  assert.ok(Math.abs(schedule(9, 5) - 0.55) < 1e-12);
  assert.ok(Math.abs(schedule(9, 40) - 0.1) < 1e-12);
  const { device, task, optimizer } = job();
  const steps: { rate: number; end: unknown; seconds: number }[] = [];
  for await (const { learningRate, end, seconds } of train(task, {
    ...{ device, optimizer, batches: () => 1, steps: 1e9, seconds: 10, elapsed: 9.95, schedule },
  }))
    steps.push({ rate: learningRate, end, seconds });
  assert.equal(steps.at(-1)!.end, "seconds");
  assert.ok(steps.at(-1)!.seconds >= 10 && steps[0]!.seconds > 9.95);
  assert.ok(steps.at(-1)!.rate < 0.05 * 0.11, `${steps.at(-1)!.rate}`);
});

test("a step that is not finite forgets what was carried", async () => {
  const { device, task, optimizer } = job();
  let resets = 0;
  const broken = { ...task, reset: () => void resets++ };
  const batches = (index: number): number => (index === 2 ? Number.NaN : 1);
  for await (const step of train(broken, { device, optimizer, batches, steps: 5 }))
    assert.equal(step.skipped, step.step === 3);
  assert.equal(resets, 1);
});
