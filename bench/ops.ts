import { noGrad, scope, type Tensor, tensor } from "../src/autograd/index.ts";
import type { Device } from "../src/device/index.ts";
import * as all from "../src/ops/all.ts";
import { type InputSpec, isOpEntry, type OpBench, type OpEntry } from "../src/ops/op.ts";
import { Random } from "../src/tensor/random.ts";
import { sizeOf } from "../src/tensor/shape.ts";
import { type Bench, type Context, figure, percent, type Row } from "./bench.ts";
import { type Contender, interleave, local } from "./measure.ts";

/** Elements a second and thread that one transcendental allows, and that two allow. */
const transcendentalRate = [1e9, 0.5e9] as const;

type Direction = "forward" | "backward";

function inputsOf(device: Device, specs: Readonly<Record<string, InputSpec>>): Record<string, Tensor> {
  const inputs: Record<string, Tensor> = {};
  for (const [name, spec] of Object.entries(specs)) {
    const random = new Random(5, name);
    const size = sizeOf(spec.shape);
    const { low = 0, high = 1, sample, values = [] } = spec;
    const isWhole = sample === "integers" || sample === "values";
    const numbers =
      sample === "values"
        ? Int32Array.from(values)
        : sample === "integers"
          ? random.integers(new Int32Array(size), low, high)
          : sample === "uniform"
            ? random.uniform(new Float32Array(size), low, high)
            : random.normal(new Float32Array(size));
    inputs[name] = tensor(device, numbers, spec.shape, {
      persistent: true,
      dtype: isWhole ? "int32" : "float32",
      requiresGrad: !isWhole && spec.differentiable !== false,
    });
  }
  return inputs;
}

/** Forward alone, without a record. */
function forwardOf(device: Device, entry: OpEntry, bench: OpBench<unknown>): Contender {
  const inputs = inputsOf(device, bench.inputs);
  const run = (): void => {
    scope(device, () => {
      entry.run(inputs, bench.options);
    });
  };
  return local(entry.name, device, () => noGrad(run));
}

/** Backward alone: forward ran before the clock. */
function backwardOf(device: Device, entry: OpEntry, bench: OpBench<unknown>): Contender {
  const inputs = inputsOf(device, bench.inputs);
  const sample = (repetitions: number): number =>
    scope(device, () => {
      const outputs = Object.values(entry.run(inputs, bench.options)).filter(
        (output) => output?.requiresGrad,
      );
      const roots = outputs as Tensor[];
      const seeds = roots.map((root) =>
        tensor(device, new Random(6).normal(new Float32Array(root.size)), root.shape),
      );
      const leaves = Object.values(inputs);
      device.settle();
      const begin = performance.now();
      for (let i = 0; i < repetitions; i++) {
        // Returned, the gradients would outlive their scope.
        scope(device, () => {
          roots[0]!.node!.backward(seedsByName(roots, seeds));
        });
      }
      device.settle();
      const seconds = (performance.now() - begin) / 1000;
      for (const leaf of leaves) leaf.grad = undefined;
      return seconds;
    });
  return { name: entry.name, sample };
}

function seedsByName(roots: readonly Tensor[], seeds: readonly Tensor[]): Record<string, Tensor> {
  const named: Record<string, Tensor> = {};
  const { outputs } = roots[0]!.node!;
  for (const name in outputs) {
    const at = roots.indexOf(outputs[name]!);
    if (at >= 0) named[name] = seeds[at]!;
  }
  return named;
}

/** The least time that the bytes, the multiply-adds and the transcendentals of a call allow. */
function floorOf(
  bench: OpBench<unknown>,
  direction: Direction,
  memory: number,
  fma: number,
  threads: number,
): number {
  const elements = Math.max(...Object.values(bench.inputs).map(({ shape }) => sizeOf(shape)));
  const each = Math.round((bench.transcendentals?.[direction] ?? 0) / elements);
  const transcendental = each === 0 ? 0 : elements / transcendentalRate[each > 1 ? 1 : 0] / threads;
  const moved = bench.bytes[direction] / memory;
  return Math.max(moved, (bench.flops?.[direction] ?? 0) / fma, transcendental);
}

async function row(context: Context, entry: OpEntry, direction: Direction, threads: number): Promise<Row> {
  const device = context.devices.get(threads)!;
  const bench = entry.bench!;
  const copy = context.peak.copy(device);
  const contender = (direction === "forward" ? forwardOf : backwardOf)(device, entry, bench);
  const [copyTiming, timing] = await interleave([copy.contender, contender], context.measure);
  context.peak.note(`memory${threads}`, copy.amount / copyTiming!.best);
  const { best } = context.peak;
  const floor = floorOf(bench, direction, best[`memory${threads}`]!, best[`fma${threads}`]!, threads);
  return {
    ...{ name: entry.name, pass: direction, threads },
    milliseconds: timing!.best * 1000,
    median: timing!.median * 1000,
    gigabytes: bench.bytes[direction] / timing!.best / 1e9,
    gflops: bench.flops && bench.flops[direction] / timing!.best / 1e9,
    share: floor / timing!.best,
  };
}

/** A call on 64 floats, forward without a record: what an op costs beside its work. */
async function smallRow(context: Context): Promise<Row> {
  const device = context.devices.get(1)!;
  const x = tensor(device, new Random(1).normal(new Float32Array(64)), [64], { persistent: true });
  const run = (): void => {
    noGrad(() => scope(device, () => all.silu(x)));
  };
  const [timing] = await interleave([local("64 floats", device, run)], context.measure);
  return {
    ...{ name: "silu of 64 floats", pass: "forward", threads: 1 },
    milliseconds: timing!.best * 1000,
    median: timing!.median * 1000,
  };
}

/** Every op that says what it moves, forward and backward. */
export const opsBench: Bench = {
  name: "ops",
  about:
    "every op forward and backward: time, GB/s and share of the floor that memory or arithmetic sets; --ids",
  columns: [
    { title: "op", text: ({ name }) => name },
    figure("pass", "pass"),
    figure("threads", "threads", 0),
    figure("ms", "milliseconds", 4),
    figure("median", "median", 4),
    figure("GB/s", "gigabytes"),
    figure("GFLOP/s", "gflops"),
    percent("of floor", "share"),
  ],
  async *run(context) {
    const ids = context.options["ids"]?.split(",");
    if (ids === undefined) yield await smallRow(context);
    for (const entry of (Object.values(all) as unknown[]).filter(isOpEntry)) {
      if (ids !== undefined && !ids.includes(entry.name)) continue;
      for (const direction of ["forward", "backward"] as const) {
        if (entry.bench === undefined || entry.bench.bytes[direction] === 0) continue;
        for (const threads of context.devices.keys()) yield await row(context, entry, direction, threads);
      }
    }
  },
};
