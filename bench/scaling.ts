import { isLinnetError } from "../src/errors.ts";
import type { Form, Mechanism } from "../src/mechanisms/mechanism.ts";
import { type Bench, type Context, figure, numbers, type Row } from "./bench.ts";
import { interleave, local } from "./measure.ts";
import { benchInputs, candidates, runOf } from "./mechanisms.ts";

const lengths = [9, 10, 11, 12, 13, 14, 15, 16].map((power) => 2 ** power);
const usual = ["linear-bare", "linear", "gla", "gated-delta", "kda", "softmax"];

/** The form that sequences of any length are run in. */
export function longForm(mechanism: Mechanism): Form | undefined {
  const { chunkwise, recurrent } = mechanism.forms;
  return typeof chunkwise === "function"
    ? chunkwise
    : typeof recurrent === "function"
      ? recurrent
      : undefined;
}

async function point(
  context: Context,
  mechanism: Mechanism,
  T: number,
  pass: "forward" | "backward",
): Promise<Row | undefined> {
  const form = longForm(mechanism);
  if (form === undefined) return undefined;
  const sizes = { T, H: 8, K: 64, V: 64 };
  const threads = Math.max(...context.devices.keys());
  const device = await context.open(threads);
  try {
    const inputs = benchInputs(mechanism, device, sizes, pass === "backward");
    const run = runOf(form, inputs, device, pass);
    const [timing] = await interleave([local(mechanism.id, device, run)], context.measure);
    const { persistent, peak } = device.info().bytes;
    const row = {
      name: mechanism.id,
      id: mechanism.id,
      pass,
      T,
      threads,
      usPerToken: (timing!.best * 1e6) / T,
    };
    return { ...row, peakBytes: peak, persistentBytes: persistent };
  } catch (error) {
    if (isLinnetError(error) && error.code === "E_OUT_OF_MEMORY") return undefined;
    throw error;
  } finally {
    device.close();
  }
}

/** Time per token as the context grows: flat for linear mechanisms, rising for softmax. */
export const scalingBench: Bench = {
  name: "scaling",
  about:
    "microseconds a token and bytes at T = 2^9 … 2^16, H 8, K = V = 64; --ids, --T, --pass forward,backward",
  columns: [
    figure("id", "name"),
    figure("pass", "pass"),
    figure("T", "T", 0),
    figure("us/token", "usPerToken", 3),
    { title: "MB at most", text: (row) => (Number(row["peakBytes"]) / 1e6).toFixed(0) },
  ],
  async *run(context) {
    const ids = context.options["ids"]?.split(",") ?? usual;
    const passes = (context.options["pass"]?.split(",") ?? ["forward"]) as ("forward" | "backward")[];
    for (const mechanism of candidates.filter(({ id }) => ids.includes(id))) {
      for (const pass of passes) {
        for (const T of numbers(context.options["T"], lengths)) {
          // Softmax costs T²: beyond this a point would take minutes.
          if (!mechanism.traits.constantState && T > 16_384) continue;
          const row = await point(context, mechanism, T, pass);
          if (row !== undefined) yield row;
        }
      }
    }
  },
};

/** The length from which on a linear mechanism is faster than softmax, by halving between powers of two. */
export const crossoverBench: Bench = {
  name: "crossover",
  about: "the length at which each linear mechanism overtakes softmax; --ids, --pass forward,backward",
  columns: [figure("id", "name"), figure("pass", "pass"), figure("T", "crossoverT", 0)],
  async *run(context) {
    const softmax = candidates.find(({ id }) => id === "softmax");
    if (softmax === undefined) return;
    const ids = context.options["ids"]?.split(",");
    const passes = (context.options["pass"]?.split(",") ?? ["forward"]) as ("forward" | "backward")[];
    for (const pass of passes) {
      const rates = new Map<number, number>();
      for (const T of [32, 64, 128, 256, 512, 1024, 2048]) {
        rates.set(T, Number((await point(context, softmax, T, pass))?.["usPerToken"]));
      }
      for (const mechanism of candidates) {
        if (!mechanism.traits.constantState || (ids !== undefined && !ids.includes(mechanism.id))) continue;
        let crossoverT: number | undefined;
        for (const [T, rate] of rates) {
          const row = await point(context, mechanism, T, pass);
          if (row === undefined || !(Number(row["usPerToken"]) < rate)) continue;
          crossoverT = T;
          break;
        }
        yield { name: mechanism.id, id: mechanism.id, pass, crossoverT };
      }
    }
  },
};
