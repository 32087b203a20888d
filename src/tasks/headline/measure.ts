import { scope } from "../../autograd/scope.ts";
import { noGrad } from "../../autograd/tape.ts";
import type { Device } from "../../device/device.ts";
import type { ModelState } from "../../models/state.ts";
import { initialize } from "../../nn/module.ts";
import { Random } from "../../tensor/random.ts";
import { generateImages } from "../image-generation/generate.ts";
import { valuesOf } from "../image-generation/images.ts";
import { PixelModel } from "../image-generation/pixel-model.ts";
import { pixelModelConfig } from "../image-generation/presets.ts";
import type { MachineLimits } from "./machine.ts";
import { type HeadlineMethod, type HeadlineModel, stepCost } from "./methods.ts";

/** One method on one model. */
export interface HeadlineRow {
  readonly model: string;
  /** Height, width, channels. */
  readonly shape: readonly number[];
  readonly method: string;
  readonly imagesPerSecond: number;
  /** How many times as fast linear is; absent where linear was not measured. */
  readonly ratio?: number;
  /** Share of the floor: the larger of operations over the peak and bytes over the bandwidth. */
  readonly floorShare: number;
  /**
   * Share of the floors of the two parts of a step added up: what weights and what mixers take at least, one after
   * another. It differs where one part computes and the other waits for memory.
   */
  readonly partsShare: number;
  /** Memory of one image beside the weights: its state at the end, or what a pass over its prefix takes. */
  readonly bytesPerImage: number;
  readonly measured: "whole" | "integrated";
  /** Images made at once, the fastest number that fits. */
  readonly batch: number;
  /** Images a second in the paper, where it has the method. */
  readonly paper?: number;
}

/** How long and how large. */
export interface MeasureLimits {
  /** Bytes that one method may take beside its weights. */
  readonly memory: number;
  /** Whole images are made where that takes at most so many seconds. */
  readonly wholeSeconds: number;
  /** Seconds spent at each position. */
  readonly positionSeconds: number;
  readonly signal?: AbortSignal;
}

/**
 * Positions on [0, 1] and weights that integrate polynomials of degree 5 exactly (Gauss–Legendre, three points): the work
 * of a step grows with the square of its position at most.
 */
const nodes = [
  [0.1127016653792583, 5 / 18],
  [0.5, 8 / 18],
  [0.8872983346207417, 5 / 18],
] as const;

/** A step of this many seconds has nothing to gain from a larger batch. */
const longestTrial = 0.4;

/** Numbers of images at once within this of the best are tried on a whole image, at most so many of them. */
const nearBest = 1.1;
const mostTried = 3;

const batches = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/** A model in place, fed with arbitrary values: time does not depend on what is drawn. */
export class Rig {
  readonly model: PixelModel;
  readonly #device: Device;
  readonly #method: HeadlineMethod;
  readonly #total: number;
  #states: ModelState | undefined;

  constructor(method: HeadlineMethod, { shape, sizes }: HeadlineModel, device: Device) {
    this.model = new PixelModel(pixelModelConfig(method.mixer, sizes, shape));
    initialize(this.model, device, new Random(1, "init"));
    this.#device = device;
    this.#method = method;
    this.#total = valuesOf(shape);
  }

  /** Bytes of one image beside the weights: its state at the end, or the fullest moment of a pass over it. */
  bytesPerImage(): number {
    if (!this.#method.carries) {
      const { persistent } = this.#device.info().bytes;
      this.pass(this.#total, 1);
      return this.#device.info().bytes.peak - persistent;
    }
    const states = this.model.decoder.createState(this.#device, 1);
    const { bytesPerSequence, bytesPerToken } = states;
    states.dispose();
    return bytesPerSequence + bytesPerToken * this.#total;
  }

  /** Seconds of the step after `t` values for `batch` images, the fastest of those in `seconds`. */
  step(t: number, batch: number, seconds: number): number {
    if (!this.#method.carries) return fastest(() => this.pass(t, batch), seconds);
    const states = this.statesFor(batch);
    const slots = Array.from({ length: batch }, (_, n) => n);
    const tokens = new Int32Array(batch).fill(7);
    // Positions are learned up to the end of an image, and a step moves on: each begins at the same place.
    const run = (): void => {
      for (const slot of slots) states.place(slot, Math.min(t, this.#total - 1));
      scope(this.#device, () =>
        noGrad(() =>
          this.model.forward({ tokens, count: batch }, this.#device, { state: { states, slots } }),
        ),
      );
      this.#device.settle();
    };
    return fastest(run, seconds);
  }

  /** States for so many images, those of the last call where it had as many: gigabytes take longer to make than to read. */
  private statesFor(batch: number): ModelState {
    if (this.#states?.slots === batch) return this.#states;
    this.forgetStates();
    const states = this.model.decoder.createState(this.#device, batch);
    // Caches get their full room at once instead of growing to it.
    states.place(0, this.#total);
    this.#states = states;
    return states;
  }

  /** Seconds of whole images, drawn as users draw them. */
  async whole(batch: number, signal: AbortSignal | undefined): Promise<number> {
    this.forgetStates();
    const began = performance.now();
    await generateImages(this.model, this.#device, {
      count: batch,
      ...(signal === undefined ? {} : { signal }),
    });
    return (performance.now() - began) / 1000;
  }

  dispose(): void {
    this.forgetStates();
    this.model.dispose();
  }

  private forgetStates(): void {
    this.#states?.dispose();
    this.#states = undefined;
  }

  /** One pass over the first `t` values. */
  private pass(t: number, batch: number): void {
    scope(this.#device, () =>
      noGrad(() => {
        const tokens = new Int32Array(batch * t).fill(7);
        this.model.forward({ tokens, count: batch }, this.#device, { lastOnly: true });
      }),
    );
    this.#device.settle();
  }
}

/** The fastest of two runs at least; the first counts too, as long ones have warmed up by their end. */
function fastest(run: () => void, seconds: number): number {
  let best = Number.POSITIVE_INFINITY;
  const end = performance.now() + 1000 * seconds;
  for (let n = 0; n < 2 || performance.now() < end; n++) {
    const began = performance.now();
    run();
    best = Math.min(best, (performance.now() - began) / 1000);
  }
  return best;
}

/**
 * Numbers of images at once whose middle step is about the cheapest, the best first. Each is looked at twice, up and down
 * the list: whatever else runs on a machine for a while then makes no number look bad by itself.
 */
function goodBatches(
  rig: Rig,
  total: number,
  limits: MeasureLimits,
  bytesPerImage: number,
): readonly number[] {
  const middle = Math.ceil(total / 2);
  // Compiled code is at its best after some calls.
  rig.step(Math.min(64, middle), 4, limits.positionSeconds);
  const each = new Map<number, number>();
  const look = (batch: number): number => {
    limits.signal?.throwIfAborted();
    const seconds = rig.step(middle, batch, limits.positionSeconds / 2);
    each.set(batch, Math.min(each.get(batch) ?? Number.POSITIVE_INFINITY, seconds / batch));
    return seconds;
  };
  for (const batch of batches) {
    if (batch > 1 && batch * bytesPerImage > limits.memory) break;
    if (look(batch) > longestTrial) break;
  }
  for (const batch of [...each.keys()].reverse()) if (batch * each.get(batch)! < longestTrial) look(batch);
  const best = Math.min(...each.values());
  return [...each]
    .filter(([, seconds]) => seconds < nearBest * best)
    .sort(([, a], [, b]) => a - b)
    .slice(0, mostTried)
    .map(([batch]) => batch);
}

/** Seconds of an image from steps at several positions. */
function integrated(rig: Rig, total: number, batch: number, limits: MeasureLimits): number {
  let sum = 0;
  for (const [at, weight] of nodes) {
    limits.signal?.throwIfAborted();
    sum += weight * total * rig.step(Math.max(1, Math.round(at * total)), batch, limits.positionSeconds);
  }
  return sum / batch;
}

/** Bytes of one image on a device of its own, whose fullest moment is that of this method alone. */
async function bytesOf(
  method: HeadlineMethod,
  model: HeadlineModel,
  open: () => Promise<Device>,
): Promise<number> {
  const device = await open();
  try {
    return new Rig(method, model, device).bytesPerImage();
  } finally {
    device.close();
  }
}

/** What measuring a method gave. */
export interface Measured {
  readonly method: HeadlineMethod;
  readonly model: HeadlineModel;
  /** Of one image. */
  readonly seconds: number;
  readonly bytesPerImage: number;
  readonly batch: number;
  readonly measured: HeadlineRow["measured"];
  readonly outputWidth: number;
}

/**
 * Measures one method.
 *
 * @param open Opens another device like the one measured on.
 */
export async function measureMethod(
  method: HeadlineMethod,
  model: HeadlineModel,
  device: Device,
  open: () => Promise<Device>,
  limits: MeasureLimits,
): Promise<Measured> {
  const total = valuesOf(model.shape);
  const bytesPerImage = await bytesOf(method, model, open);
  const rig = new Rig(method, model, device);
  try {
    let [batch, seconds] = [1, Number.POSITIVE_INFINITY];
    for (const tried of goodBatches(rig, total, limits, bytesPerImage)) {
      const came = integrated(rig, total, tried, limits);
      if (came < seconds) [batch, seconds] = [tried, came];
    }
    const isWhole = seconds * batch <= limits.wholeSeconds;
    if (isWhole) seconds = (await rig.whole(batch, limits.signal)) / batch;
    const measured = isWhole ? "whole" : "integrated";
    return { method, model, seconds, bytesPerImage, batch, measured, outputWidth: rig.model.output.width };
  } finally {
    rig.dispose();
  }
}

/** A row of the table: what was measured beside the machine's limits and linear's seconds an image. */
export function rowOf(done: Measured, machine: MachineLimits, linear: number | undefined): HeadlineRow {
  const { method, model, seconds, bytesPerImage, batch, measured } = done;
  const { height, width, channels } = model.shape;
  const floors = floorsOf(method, model, done.outputWidth, batch, machine);
  const paper = model.paper[method.id];
  return {
    ...{ model: model.name, shape: [height, width, channels], method: method.id },
    ...{ imagesPerSecond: 1 / seconds },
    ...(linear === undefined ? {} : { ratio: seconds / linear }),
    ...{ floorShare: floors.whole / seconds, partsShare: floors.parts / seconds },
    ...{ bytesPerImage, batch, measured },
    ...(paper === undefined ? {} : { paper }),
  };
}

/** Seconds that an image takes at least: as a whole, and with the parts of its steps one after another. */
function floorsOf(
  method: HeadlineMethod,
  model: HeadlineModel,
  outputWidth: number,
  batch: number,
  { operationsPerSecond, bytesPerSecond }: MachineLimits,
): { readonly whole: number; readonly parts: number } {
  let [operations, bytes, parts] = [0, 0, 0];
  for (let t = 1; t <= valuesOf(model.shape); t++) {
    for (const part of Object.values(stepCost(method, model, outputWidth, t, batch))) {
      operations += part.operations;
      bytes += part.bytes;
      parts += Math.max(part.operations / operationsPerSecond, part.bytes / bytesPerSecond);
    }
  }
  const whole = Math.max(operations / operationsPerSecond, bytes / bytesPerSecond);
  return { whole: whole / batch, parts: parts / batch };
}
