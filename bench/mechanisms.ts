import { scope } from "../src/autograd/scope.ts";
import { gradients, noGrad } from "../src/autograd/tape.ts";
import { type Tensor, type Tensors, tensor } from "../src/autograd/tensor.ts";
import type { Device } from "../src/device/index.ts";
import { linearForms } from "../src/mechanisms/linear/forms.ts";
import { linear } from "../src/mechanisms/linear/index.ts";
import { type Form, formNames, type Mechanism } from "../src/mechanisms/mechanism.ts";
import { mechanisms } from "../src/mechanisms/registry.ts";
import { Random } from "../src/tensor/random.ts";
import { type Bench, type Context, figure, numbers, peerFigure, percent, type Row } from "./bench.ts";
import { type Contender, interleave, local } from "./measure.ts";
import type { PeerTask } from "./peers/task.ts";
import { openTorch, type TorchPeer } from "./peers/torch.ts";

/** Sizes of one job, batch 1. */
export interface JobSizes {
  readonly T: number;
  readonly H: number;
  readonly K: number;
  readonly V: number;
}

type Pass = "forward" | "backward";

/** Linear attention with neither map nor normaliser: what the ONNX operator calls linear. */
const bare: Mechanism = {
  ...linear,
  id: "linear-bare",
  title: "Linear attention without map and normaliser",
  forms: linearForms("identity", { normalize: false }),
};

/** Rules of the ONNX operator by our ids. */
const onnxRules: Readonly<Record<string, string>> = {
  "linear-bare": "linear",
  mamba2: "gated",
  delta: "delta",
  "gated-delta": "gated_delta",
};

/** Everything that can be measured. */
export const candidates: readonly Mechanism[] = [bare, ...mechanisms];

/** Admissible inputs that are not optional, on a device, to live as long as it does. */
export function benchInputs(
  mechanism: Mechanism,
  device: Device,
  sizes: JobSizes,
  requiresGrad: boolean,
): Tensors {
  const usual = { ...sizes, B: 1, HV: sizes.H, HQ: sizes.H, HKV: sizes.H };
  const features = mechanism.featureWidth?.(sizes.K) ?? sizes.K;
  const axes: Record<string, number> = { F: features, ...usual, ...mechanism.ownAxes?.(usual) };
  const random = new Random(7);
  const inputs: Record<string, Tensor> = {};
  for (const [name, rule] of Object.entries(mechanism.inputs)) {
    if (rule.optional) continue;
    const shape = rule.axes.split(" ").map((axis) => axes[axis] ?? Number(axis));
    const size = shape.reduce((product, length) => product * length, 1);
    const values = random.normal(new Float32Array(size)).map((value) => rule.sample(value));
    if (mechanism.traits.unitKeys && (name === "k" || name === "q")) normalize(values, sizes.K);
    inputs[name] = tensor(device, values, shape, {
      persistent: true,
      requiresGrad: requiresGrad && rule.differentiable !== false,
    });
  }
  return inputs;
}

function normalize(values: Float32Array, width: number): void {
  for (let from = 0; from < values.length; from += width) {
    const row = values.subarray(from, from + width);
    const size = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0)) || 1;
    for (let i = 0; i < width; i++) row[i]! /= size;
  }
}

/** One run of a form, forward alone or with the backward pass behind it. */
export function runOf(form: Form, inputs: Tensors, device: Device, pass: Pass): () => void {
  if (pass === "forward") return () => noGrad(() => scope(device, () => void form(inputs)));
  const wrt = Object.values(inputs).filter((input) => input?.requiresGrad) as Tensor[];
  const seed = scope(device, () => {
    const { output } = noGrad(() => form(inputs));
    return tensor(device, new Random(3).normal(new Float32Array(output!.size)), output!.shape, {
      persistent: true,
    });
  });
  return () =>
    scope(device, () => {
      const { output } = form(inputs);
      gradients(output!, wrt, [seed]);
    });
}

/** Multiply-adds times two that the recurrence itself needs: per token and head one state update and one read. */
function flopsOf({ traits }: Mechanism, { T, H, K, V }: JobSizes, pass: Pass): number {
  const pairs = (T * (T + 1)) / 2;
  const forward =
    traits.write === "none" ? 2 * pairs * H * (K + V) : (traits.write === "delta" ? 6 : 4) * T * H * K * V;
  return pass === "forward" ? forward : 3.5 * forward;
}

function onnxTask(id: string, { T, H, K, V }: JobSizes): PeerTask {
  const rule = onnxRules[id];
  if (rule === undefined) return {};
  const gate = rule.includes("gated");
  const delta = rule.includes("delta");
  return {
    onnx: {
      nodes: [
        {
          ...{ op: "LinearAttention", domain: "com.microsoft", outputs: ["o", "s"] },
          inputs: ["q", "k", "v", "", gate ? "g" : "", delta ? "beta" : ""],
          ints: { q_num_heads: H, kv_num_heads: H, update_rule: rule },
        },
      ],
      inputs: {
        ...{ q: [1, T, H * K], k: [1, T, H * K], v: [1, T, H * V] },
        ...(gate ? { g: [1, T, H] } : {}),
        ...(delta ? { beta: [1, T, H] } : {}),
      },
      outputs: { o: [1, T, H * V], s: [1, H, K, V] },
    },
  };
}

interface Job {
  readonly mechanism: Mechanism;
  readonly sizes: JobSizes;
  readonly threads: number;
  readonly pass: Pass;
}

async function peersOf(context: Context, torch: TorchPeer | undefined, job: Job): Promise<Contender[]> {
  const { mechanism, sizes, threads, pass } = job;
  const found: (Contender | undefined)[] = [];
  if (pass === "forward" && onnxRules[mechanism.id] !== undefined) {
    for (const name of ["onnxruntime-web", "onnxruntime-node"]) {
      found.push(await context.peers.contender(name, threads, onnxTask(mechanism.id, sizes)));
    }
  }
  found.push(
    await torch?.contender({ name: mechanism.id, ...sizes, backward: pass === "backward" }, threads),
  );
  return found.filter((contender) => contender !== undefined);
}

/** Bytes of a run, counted on a device that held nothing before. */
export interface RunBytes {
  /** Inputs, outputs and, with a backward pass, the gradients of both. */
  readonly own: number;
  /** What was taken beyond these at the fullest moment, the threads' workspace included. */
  readonly extra: number;
}

/** Counts the bytes of one run of a form. */
export async function bytesOf(
  context: Context,
  mechanism: Mechanism,
  form: Form,
  job: Omit<Job, "mechanism">,
): Promise<RunBytes> {
  const device = await context.open(job.threads);
  try {
    const before = device.info().bytes.peak;
    const inputs = benchInputs(mechanism, device, job.sizes, job.pass === "backward");
    const bytes = (tensors: Tensors): number =>
      Object.values(tensors).reduce((sum, one) => sum + 4 * (one?.size ?? 0), 0);
    const ofOutputs = { bytes: 0 };
    const counted: Form = (given, options) => {
      const outputs = form(given, options);
      ofOutputs.bytes = bytes(outputs);
      return outputs;
    };
    runOf(counted, inputs, device, job.pass)();
    const own = (bytes(inputs) + ofOutputs.bytes) * (job.pass === "backward" ? 2 : 1);
    return { own, extra: Math.max(0, device.info().bytes.peak - before - own) };
  } finally {
    device.close();
  }
}

async function* rowsOf(context: Context, torch: TorchPeer | undefined, job: Job): AsyncGenerator<Row> {
  const { mechanism, sizes, threads, pass } = job;
  const device = context.devices.get(threads)!;
  const inputs = benchInputs(mechanism, device, sizes, pass === "backward");
  const forms = formNames.filter((name) => {
    if (name === "step" || (name === "parallel" && sizes.T > 1024)) return false;
    return (
      typeof mechanism.forms[name] === "function" &&
      !(pass === "backward" && name === "recurrent" && mechanism.traits.write === "add")
    );
  });
  const peak = context.peak.fma(device);
  const ours = forms.map((name) =>
    local(name, device, runOf(mechanism.forms[name] as Form, inputs, device, pass)),
  );
  const peers = await peersOf(context, torch, job);
  const timings = await interleave([peak.contender, ...ours, ...peers], context.measure);
  const rate = peak.amount / timings[0]!.best;
  context.peak.note(`fma${threads}`, rate);
  const flops = flopsOf(mechanism, sizes, pass);
  const peerMs: Record<string, number> = {};
  for (const [i, peer] of peers.entries()) peerMs[peer.name] = timings[1 + ours.length + i]!.best * 1000;
  const best = Math.min(...ours.map((_, i) => timings[1 + i]!.best));
  for (const [i, name] of forms.entries()) {
    const { best: seconds, median } = timings[1 + i]!;
    const ratios = Object.fromEntries(
      Object.entries(peerMs).map(([peer, ms]) => [peer, ms / (seconds * 1000)]),
    );
    const { own, extra } = await bytesOf(context, mechanism, mechanism.forms[name] as Form, job);
    yield {
      ...{
        name: mechanism.id,
        id: mechanism.id,
        form: name,
        pass,
        T: sizes.T,
        threads,
        ms: seconds * 1000,
        medianMs: median * 1000,
      },
      ...{
        gflops: flops / seconds / 1e9,
        share: flops / seconds / rate,
        extraBytes: extra,
        extraShare: extra / own,
        isBest: seconds === best ? "best" : "",
      },
      ...{ peers: peerMs, ratios },
    };
  }
  for (const input of Object.values(inputs)) input?.dispose();
}

const ratio = (title: string, peer: string) => ({
  title,
  text: (row: Row) => {
    const value = (row["ratios"] as Record<string, number> | undefined)?.[peer];
    return value === undefined ? "" : `${value.toFixed(2)}x`;
  },
});

/** Every mechanism in every form, beside the peers that have it. */
export const mechanismsBench: Bench = {
  name: "mechanisms",
  about:
    "every form of every mechanism; --ids, --T 1024,4096, --heads, --key, --value, --threads, --pass forward|backward, --python PATH (PyTorch as a peer)",
  columns: [
    figure("id", "name"),
    figure("form", "form"),
    figure("T", "T", 0),
    figure("threads", "threads", 0),
    figure("ms", "ms", 2),
    figure("GFLOP/s", "gflops"),
    percent("of peak", "share"),
    percent("extra", "extraShare"),
    figure("best", "isBest"),
    peerFigure("ort-web", "onnxruntime-web"),
    ratio("ratio", "onnxruntime-web"),
    peerFigure("ort-node", "onnxruntime-node"),
    ratio("ratio", "onnxruntime-node"),
    peerFigure("torch", "pytorch"),
    ratio("ratio", "pytorch"),
  ],
  async *run(context) {
    const { options } = context;
    const ids = options["ids"]?.split(",");
    const torch = openTorch(options["python"]);
    const most = Math.max(...context.devices.keys());
    const [H, K, V] = [options["heads"], options["key"], options["value"]].map((text, i) =>
      Number(text ?? [8, 64, 64][i]),
    );
    const passes = (options["pass"]?.split(",") ?? ["forward"]) as Pass[];
    try {
      for (const mechanism of candidates.filter(({ id }) => ids === undefined || ids.includes(id))) {
        for (const T of numbers(options["T"], [4096])) {
          for (const threads of numbers(options["threads"], [most])) {
            for (const pass of passes) {
              yield* rowsOf(context, torch, { mechanism, sizes: { T, H: H!, K: K!, V: V! }, threads, pass });
            }
          }
        }
      }
    } finally {
      torch?.close();
    }
  },
};
