import type { Tensor, Tensors } from "../../autograd/tensor.ts";
import { ConfigError, ShapeError } from "../../errors.ts";
import { fullForms } from "../attention/full-forms.ts";
import type { FormOptions, InputRule } from "../mechanism.ts";
import { attendLandmarks } from "./landmarks.ts";

const same = (normal: number): number => normal;

/** Inputs of Nyström attention. */
export const inputs: Readonly<Record<string, InputRule>> = {
  q: { axes: "B T H K", domain: "any", sample: same },
  k: { axes: "B T H K", domain: "any", sample: same },
  v: { axes: "B T H V", domain: "any", sample: same },
  convolution: { axes: "H W", domain: "any, W odd", optional: true, sample: same },
};

/** Why it is not causal. */
export const why = {
  reason: "its landmarks are means over all tokens, later ones too",
  instead: "Take sliding-window, or linear attention such as gated-delta, for causal sequences.",
};

/** How a form is called beyond its inputs. */
export interface NystromFormOptions extends FormOptions {
  /** Landmarks m, at most T and at most Tk; 64 or as many as there are tokens, the fewer, unless given. */
  readonly landmarks?: number;
  /** Steps of the pseudo-inverse; 6 unless given. */
  readonly iterations?: number;
}

/** Landmarks where a call does not say. */
export const defaultLandmarks = 64;
/** Steps of the pseudo-inverse where a call does not say. */
export const defaultIterations = 6;

/** Throws for numbers of landmarks or steps that are none. */
export function checkCounts(who: string, landmarks: number, iterations: number): void {
  if (!Number.isInteger(landmarks) || landmarks < 1)
    throw new ConfigError(`[${who}] landmarks: expected a whole number >= 1, got ${landmarks}`);
  if (!Number.isInteger(iterations) || iterations < 0)
    throw new ConfigError(`[${who}] iterations: expected a whole number >= 0, got ${iterations}`);
}

/** Throws for a convolution without a middle. */
export function checkConvolution(who: string, width: number | undefined): void {
  if (width === undefined || (Number.isInteger(width) && width % 2 === 1)) return;
  throw new ConfigError(
    `[${who}] the convolution has its token in the middle: expected an odd width, got ${width}`,
  );
}

function check(who: string, given: Tensors, options: NystromFormOptions): void {
  const { landmarks, iterations = defaultIterations } = options;
  checkCounts(who, landmarks ?? 1, iterations);
  checkConvolution(who, given["convolution"]?.shape[1]);
  const [T, Tk] = [given["q"]!.shape[1]!, given["k"]!.shape[1]!];
  if (landmarks === undefined || landmarks <= Math.min(T, Tk)) return;
  throw new ShapeError(
    `[${who}] landmarks are means of tokens: expected at most T ${T} and Tk ${Tk}, got ${landmarks}`,
    "As many landmarks as tokens are softmax itself.",
  );
}

/** Rows of queries and keys with as many landmarks as they can have. */
export function fitting(landmarks: number, { q, k }: { readonly q: Tensor; readonly k: Tensor }): number {
  return Math.max(1, Math.min(landmarks, q.shape[1]!, k.shape[1]!));
}

/** The forms of Nyström attention; costs 4·T·m·(K + V) flops a head and row, and 8·m³ a step of the pseudo-inverse. */
export const forms = fullForms<NystromFormOptions>({
  ...{ id: "nystrom", inputs, why, check },
  compute: (rows, { convolution }, options, attend) => {
    const { landmarks = defaultLandmarks, iterations = defaultIterations } = options;
    const scale = options.scale ?? rows.q.shape[3]! ** -0.5;
    const choices = { landmarks: fitting(landmarks, rows), iterations, scale, convolution };
    return attendLandmarks(rows, choices, attend);
  },
});
