import { scope } from "../src/autograd/scope.ts";
import { noGrad } from "../src/autograd/tape.ts";
import { type Tensor, tensor } from "../src/autograd/tensor.ts";
import type { Device } from "../src/device/index.ts";
import { matmul } from "../src/ops/matmul/index.ts";
import { type Bench, type Context, figure, peerFigure, percent, type Row } from "./bench.ts";
import { type Contender, interleave, local } from "./measure.ts";
import { type PeerTask, randomValues } from "./peers/task.ts";

interface Form {
  readonly name: string;
  readonly short: "nn" | "nt" | "tn";
  readonly options: { readonly transposeA?: boolean; readonly transposeB?: boolean };
}

const forms: readonly Form[] = [
  { name: "A·B", short: "nn", options: {} },
  { name: "A·Bᵀ", short: "nt", options: { transposeB: true } },
  { name: "Aᵀ·B", short: "tn", options: { transposeA: true } },
];

/** Sides of the square matrices; the smallest ones come in a stack, as heads and chunks do. */
const sizes = [
  { n: 64, batch: 64 },
  { n: 256, batch: 1 },
  { n: 512, batch: 1 },
  { n: 1024, batch: 1 },
];

const peers = ["onnxruntime-web", "@jax-js/jax"] as const;

function ours(device: Device, shape: readonly number[], form: Form): Contender {
  const make = (): Tensor => tensor(device, randomValues(shape), shape, { persistent: true });
  const [a, b] = [make(), make()];
  return local("linnet", device, () => {
    noGrad(() =>
      scope(device, () => {
        matmul(a, b, form.options);
      }),
    );
  });
}

/** The same product as users of the peers write it. */
function taskOf(form: Form, shape: readonly number[]): PeerTask {
  const axes = shape.map((_, axis) => axis);
  const perm = [...axes.slice(0, -2), axes.at(-1)!, axes.at(-2)!];
  const turn = (from: string) => ({ op: "Transpose", inputs: [from], outputs: [`${from}t`], ints: { perm } });
  const [left, right] = [form.options.transposeA ? "at" : "a", form.options.transposeB ? "bt" : "b"];
  const turns = [left === "at" ? [turn("a")] : [], right === "bt" ? [turn("b")] : []].flat();
  return {
    onnx: {
      nodes: [...turns, { op: "MatMul", inputs: [left, right], outputs: ["y"] }],
      inputs: { a: shape, b: shape },
      outputs: { y: shape },
    },
    jax: { name: form.short, shapes: [shape, shape] },
  };
}

/** One product on one thread count: the peak of those threads, ours, and the peers that can run so. */
async function row(
  context: Context,
  form: Form,
  { n, batch }: (typeof sizes)[number],
  threads: number,
): Promise<Row> {
  const device = context.devices.get(threads)!;
  const shape = batch === 1 ? [n, n] : [batch, n, n];
  const operations = 2 * n ** 3 * batch;
  const peak = context.peak.fma(device);
  const contenders = [peak.contender, ours(device, shape, form)];
  for (const name of peers) {
    // jax has no threads in Node
    if (name === "@jax-js/jax" && threads > 1) continue;
    const contender = await context.peers.contender(name, threads, taskOf(form, shape));
    if (contender !== undefined) contenders.push(contender);
  }
  const [peakTiming, timing, ...others] = await interleave(contenders, context.measure);
  const rate = peak.amount / peakTiming!.best;
  context.peak.note(`fma${threads}`, rate);
  const found: Record<string, number> = {};
  for (const [i, other] of others.entries()) found[contenders[i + 2]!.name] = operations / other.best / 1e9;
  return {
    ...{ name: form.name, n, batch, threads },
    gflops: operations / timing!.best / 1e9,
    median: operations / timing!.median / 1e9,
    share: operations / timing!.best / rate,
    peers: found,
  };
}

/** Matrix products of the sizes models are made of. */
export const matmulBench: Bench = {
  name: "matmul",
  about: "A·B, A·Bᵀ and Aᵀ·B in GFLOP/s, as a share of the register peak and beside the peers",
  columns: [
    figure("product", "name"),
    { title: "n", text: ({ n, batch }) => (batch === 1 ? `${n}` : `${batch} x ${n}`) },
    figure("threads", "threads", 0),
    figure("GFLOP/s", "gflops"),
    figure("median", "median"),
    percent("of peak", "share"),
    ...peers.map((name) => peerFigure(name, name)),
  ],
  async *run(context) {
    for (const size of sizes) {
      for (const form of forms) {
        for (const threads of context.devices.keys()) yield await row(context, form, size, threads);
      }
    }
  },
};
