/** Images a second of linear attention beside what it replaces, on the two models of "Transformers are RNNs". */
import type { Device } from "../../device/device.ts";
import { ConfigError } from "../../errors.ts";
import { type MachineLimits, measureLimits } from "./machine.ts";
import { type HeadlineRow, type Measured, measureMethod, rowOf } from "./measure.ts";
import { headlineMethods, headlineModels } from "./methods.ts";

export type { MachineLimits } from "./machine.ts";
export type { HeadlineRow } from "./measure.ts";
export { headlineMethods, headlineModels } from "./methods.ts";

/** Options of `headline`. */
export interface HeadlineOptions {
  /** Bytes that the images of one method may take beside its weights; 3 GiB unless given. */
  readonly memory?: number;
  /** Whole images are made where that takes at most so many seconds; 20 unless given. */
  readonly wholeSeconds?: number;
  /** Seconds spent at each position; 0.4 unless given. */
  readonly positionSeconds?: number;
  readonly models?: readonly string[];
  readonly methods?: readonly string[];
  readonly signal?: AbortSignal;
  /** Called when the methods of a model are measured, and the machine's limits between them; rows follow. */
  readonly onLimits?: (limits: MachineLimits) => void;
  /** Called before a method is measured. */
  readonly onStart?: (model: string, method: string) => void;
}

/** Bytes that one method may take beside its weights, where a call does not say. */
export const headlineMemory = 3 * 2 ** 30;

/**
 * Measures every method on both models, each at its best batch size under a memory limit; linear comes first, and ratios
 * are to it. What is slow is measured at several positions of an image and integrated.
 *
 * @param open Opens a device; one measures time, others the bytes of each method.
 * @throws ConfigError for a model or method that is not there; the signal's reason when it aborts.
 */
export async function* headline(
  open: () => Promise<Device>,
  options: HeadlineOptions = {},
): AsyncGenerator<HeadlineRow> {
  const { memory = headlineMemory, wholeSeconds = 20, positionSeconds = 0.4, signal } = options;
  const models = chosen(headlineModels, ({ name }) => name, "model", options.models);
  const methods = chosen(headlineMethods, ({ id }) => id, "method", options.methods);
  const limits = { memory, wholeSeconds, positionSeconds, ...(signal === undefined ? {} : { signal }) };
  const device = await open();
  try {
    let machine = measureLimits(device);
    for (const model of models) {
      const done: Measured[] = [];
      for (const method of methods) {
        options.onStart?.(model.name, method.id);
        done.push(await measureMethod(method, model, device, open, limits));
        // The best that was seen at any time: whatever else ran at one moment did not at all of them.
        machine = better(machine, measureLimits(device));
        // Lets signals in.
        await new Promise((resolve) => setTimeout(resolve, 0));
      }
      options.onLimits?.(machine);
      const linear = done.find(({ method }) => method === headlineMethods[0])?.seconds;
      for (const one of done) yield rowOf(one, machine, linear);
    }
  } finally {
    device.close();
  }
}

function better(a: MachineLimits, b: MachineLimits): MachineLimits {
  return {
    operationsPerSecond: Math.max(a.operationsPerSecond, b.operationsPerSecond),
    bytesPerSecond: Math.max(a.bytesPerSecond, b.bytesPerSecond),
  };
}

function chosen<Item>(
  items: readonly Item[],
  nameOf: (item: Item) => string,
  what: string,
  names: readonly string[] | undefined,
): readonly Item[] {
  const known = items.map(nameOf);
  const unknown = names?.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    throw new ConfigError(`[headline] unknown ${what} "${unknown}": expected some of ${known.join(", ")}`);
  }
  return names === undefined ? items : items.filter((item) => names.includes(nameOf(item)));
}
