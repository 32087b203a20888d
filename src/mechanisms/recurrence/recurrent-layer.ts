import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError, UnsupportedError } from "../../errors.ts";
import { checkTokens, Layer, type LayerContext, type LayerOptions } from "../layer.ts";
import { Stream } from "./stream.ts";

/** Which calls a layer takes beyond causal ones. */
export interface LayerReach {
  /** `causal: false`, and keys and values from `memory`. */
  readonly full: boolean;
}

/** What the layers of all recurrences share: padding, carried state, and refusing what they cannot do. */
export abstract class RecurrentLayer extends Layer {
  /** Id of the mechanism, for errors. */
  protected readonly who: string;
  readonly sizes: HeadSizes;
  readonly #reach: LayerReach;

  constructor(who: string, sizes: HeadSizes, reach: LayerReach = { full: false }) {
    super();
    this.who = who;
    this.sizes = sizes;
    this.#reach = reach;
  }

  override forward(x: Tensor, context: LayerContext): Tensor {
    this.check(x, context);
    const stream = new Stream(this.who, x, context);
    return stream.close(this.mix(stream.x, stream));
  }

  /** The layer itself on tokens without padding: `x [B, T, D]` → `[B, T, D]`. */
  protected abstract mix(x: Tensor, stream: Stream): Tensor;

  private check(x: Tensor, context: LayerContext): void {
    checkTokens(this.who, x, this.sizes.D);
    if (context.state !== undefined && !context.causal) {
      throw new UnsupportedError(
        `[${this.who}] state is carried from token to token: expected causal: true beside it, got false`,
      );
    }
    if (this.#reach.full || (context.causal && context.memory === undefined)) return;
    throw new UnsupportedError(
      `[${this.who}] the layer is causal: expected causal: true and no memory, got ${context.causal ? "a memory" : "causal: false"}`,
      "Its update follows the order of the tokens; use a mechanism whose traits say full.",
    );
  }
}

/** Axes of a layer by their letters. */
export interface HeadSizes {
  readonly D: number;
  readonly H: number;
  readonly HV: number;
  readonly K: number;
  readonly V: number;
}

/**
 * The axes that the options of a layer ask for.
 *
 * @param defaults K and V where the options do not say, from D and H.
 * @throws ConfigError for a size that is no whole number >= 1, or value heads that do not group.
 */
export function headSizes(
  who: string,
  options: LayerOptions,
  defaults: (D: number, H: number) => { readonly K: number; readonly V: number },
): HeadSizes {
  const { width: D, heads: H, valueHeads: HV = H } = options;
  const usual = defaults(D, H);
  const sizes = { D, H, HV, K: options.keyWidth ?? usual.K, V: options.valueWidth ?? usual.V };
  const names = { D: "width", H: "heads", HV: "valueHeads", K: "keyWidth", V: "valueWidth" } as const;
  for (const axis of ["D", "H", "HV", "K", "V"] as const) {
    if (Number.isInteger(sizes[axis]) && sizes[axis] >= 1) continue;
    throw new ConfigError(
      `[${who}] ${names[axis]} is a size: expected a whole number >= 1, got ${sizes[axis]} (width ${D}, heads ${H})`,
      "Where a width per head does not follow from width and heads, pass keyWidth and valueWidth.",
    );
  }
  if (HV % H === 0) return sizes;
  throw new ConfigError(
    `[${who}] valueHeads group over heads: expected a multiple of heads ${H}, got ${HV}`,
    "Value head j reads key head floor(j / (valueHeads/heads)).",
  );
}

const sharedNames = [
  ...["width", "heads", "valueHeads", "keyWidth", "valueWidth", "layer", "layers", "normEps"],
  ...["rotary", "zeroCentered", "shared"],
];

/** Throws a ConfigError for an option that neither every layer nor this one has: a typing mistake changes nothing else. */
export function checkOptions(who: string, options: LayerOptions, own: readonly string[] = []): void {
  const known = [...sharedNames, ...own];
  const unknown = Object.keys(options).filter((name) => !known.includes(name) && options[name] !== undefined);
  if (unknown.length === 0) return;
  throw new ConfigError(
    `[${who}] option ${unknown[0]} is not known here: expected some of ${known.join(", ")}`,
  );
}
