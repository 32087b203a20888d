import type { Tensor } from "../../autograd/tensor.ts";
import { ConfigError } from "../../errors.ts";
import { normalInit } from "../../nn/init.ts";
import { Linear } from "../../nn/linear.ts";
import { Module, Parameter } from "../../nn/module.ts";
import { attention } from "../attention/attention-op.ts";
import type { FullInputs } from "../attention/full-forms.ts";
import { forwardFull } from "../attention/full-layer.ts";
import { Layer, type LayerContext, type LayerOptions, type StateSpec } from "../layer.ts";
import { checkOptions, type HeadSizes, headSizes } from "../recurrence/recurrent-layer.ts";
import { attendProjected, checkLength, why } from "./forms.ts";

/** Options of the layer beyond those of every layer. K and V are D/H unless given. */
export interface LinformerOptions extends LayerOptions {
  /** L, the longest sequence; 512 unless given. */
  readonly length?: number;
  /** M, rows that keys and values are projected to, one number or one for each layer; 256 or L, the smaller, unless given. */
  readonly projectionLength?: number | readonly number[];
  /**
   * Who has matrices of its own: `none` every head for keys and for values, `heads` one for keys and one for values,
   * `key-value` one for both, `layer` one for both in all layers of a model. Heads unless given.
   */
  readonly sharing?: "none" | "heads" | "key-value" | "layer";
  /** Multiplies q·k; K^-½ unless given. */
  readonly scale?: number;
  /** Projections of tokens with a bias; false unless given. */
  readonly bias?: boolean;
}

const who = "linformer";

/** The matrices E and F, `[G,M,L]`: one where keys and values share it. */
export class TimeProjection extends Module {
  readonly key: Parameter;
  readonly value: Parameter | undefined;

  constructor(shape: readonly [G: number, M: number, L: number], shared: boolean) {
    super();
    const init = normalInit(shape[1] ** -0.5);
    this.key = new Parameter(shape, { init });
    this.value = shared ? undefined : new Parameter(shape, { init });
  }
}

/**
 * The layer of Linformer (arXiv 2006.04768, section 4): keys and values projected along time by learned matrices, shared in
 * one of the paper's ways. Not causal; a sequence shorter than L uses the first columns, one behind padding as well.
 */
export class LinformerLayer extends Layer {
  readonly stateSpec: Readonly<Record<string, StateSpec>> = {};
  readonly sizes: HeadSizes;
  readonly qProj: Linear;
  readonly kProj: Linear;
  readonly vProj: Linear;
  readonly projection: TimeProjection;
  readonly oProj: Linear;
  readonly #length: number;
  readonly #scale: number | undefined;

  constructor(options: LinformerOptions) {
    super();
    checkOptions(who, options, ["length", "projectionLength", "sharing", "scale", "bias"]);
    this.sizes = headSizes(who, options, (D, H) => ({ K: D / H, V: D / H }));
    const { D, H, HV, K, V } = this.sizes;
    if (HV !== H)
      throw new ConfigError(`[${who}] every head has its own value: expected valueHeads ${H}, got ${HV}`);
    const { bias = false } = options;
    this.#length = options.length ?? 512;
    this.#scale = options.scale;
    this.qProj = new Linear(D, H * K, { bias });
    this.kProj = new Linear(D, H * K, { bias });
    this.vProj = new Linear(D, H * V, { bias });
    this.projection = projectionOf(options, H, this.#length);
    this.oProj = new Linear(H * V, D, { bias });
  }

  override forward(x: Tensor, context: LayerContext): Tensor {
    return forwardFull(this, { who, why, attend: (rows) => this.attend(rows) }, x, context);
  }

  private attend(rows: FullInputs): Tensor {
    const { key, value } = this.projection;
    checkLength(who, rows.k.shape[1]!, this.#length);
    return attendProjected(
      rows,
      key.value,
      (value ?? key).value,
      this.#scale,
      (inputs, options) => attention(inputs, options).output,
    );
  }
}

function projectionOf(options: LinformerOptions, H: number, L: number): TimeProjection {
  const { projectionLength, layer = 0, sharing = "heads", shared } = options;
  const M =
    typeof projectionLength === "object" ? projectionLength[layer] : (projectionLength ?? Math.min(256, L));
  if (!Number.isInteger(L) || L < 1)
    throw new ConfigError(`[${who}] length is a size: expected a whole number >= 1, got ${L}`);
  if (M === undefined || !Number.isInteger(M) || M < 1 || M > L) {
    throw new ConfigError(
      `[${who}] projectionLength: expected a whole number from 1 to length ${L}, got ${M ?? `none for layer ${layer}`}`,
      "A projection longer than the sequence costs more than softmax.",
    );
  }
  if (sharing === "none") return new TimeProjection([H, M, L], false);
  if (sharing === "heads") return new TimeProjection([1, M, L], false);
  if (sharing === "key-value") return new TimeProjection([1, M, L], true);
  if (sharing !== "layer") {
    throw new ConfigError(
      `[${who}] sharing: expected none, heads, key-value or layer, got ${String(sharing)}`,
    );
  }
  const name = `${who} ${M} ${L}`;
  const own = shared?.get(name) ?? new TimeProjection([1, M, L], true);
  shared?.set(name, own);
  return own as TimeProjection;
}
