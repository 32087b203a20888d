import { type Tensor, tensor } from "../autograd/tensor.ts";
import { ConfigError, checkWord } from "../errors.ts";
import { add } from "../ops/arithmetic/index.ts";
import { embedding, gatherRows } from "../ops/embedding/index.ts";
import { normalInit } from "./init.ts";
import { Module, Parameter } from "./module.ts";
import { roomFor } from "./rotary.ts";

/** How positions are added to the embedding of tokens; rotary ones are none here, they enter inside the mixers. */
export type PositionKind =
  | { readonly kind: "none" | "rotary" | "sinusoidal" }
  | { readonly kind: "learned"; readonly length: number };

/**
 * Vectors added to tokens by their positions: learned ones, or sines and cosines
 * (p, 2i) ↦ sin(p / 10000^(2i/D)), (p, 2i+1) ↦ cos (Attention is all you need, arXiv 1706.03762v7, section 3.5).
 */
export class Positions extends Module {
  readonly weight: Parameter | undefined;
  readonly #kind: PositionKind;
  readonly #width: number;
  /** The longest one last; steps that were noted down still read shorter ones. */
  readonly #tables: Tensor[] = [];

  constructor(kind: PositionKind, width: number) {
    super();
    checkWord("positions", "kind", kind.kind, ["none", "rotary", "sinusoidal", "learned"]);
    this.#kind = kind;
    this.#width = width;
    this.weight =
      kind.kind === "learned" ? new Parameter([kind.length, width], { init: normalInit(0.02) }) : undefined;
  }

  /** Whether there is anything to add to the embedding. */
  get areAdded(): boolean {
    return this.#kind.kind === "learned" || this.#kind.kind === "sinusoidal";
  }

  /** Positions that there are vectors for. */
  get room(): number {
    return this.#kind.kind === "learned" ? this.#kind.length : Number.POSITIVE_INFINITY;
  }

  /** `x [B, T, D]` whose tokens stand at `places`, B·T of them → `[B, T, D]`. */
  forward(x: Tensor, places: Int32Array): Tensor {
    if (!this.areAdded) return x;
    const needed = places.reduce((most, place) => Math.max(most, place + 1), 0);
    const table = this.tableFor(x, needed);
    return add(x, embedding(tensor(x.device, places, x.shape.slice(0, 2), { dtype: "int32" }), table));
  }

  /**
   * The same for positions on the device, int32 `[B, T]`, none of them beyond `last`: without gradients.
   *
   * @throws ConfigError where `last` is beyond what the model has learned.
   */
  forwardAt(x: Tensor, positions: Tensor, last: number): Tensor {
    return this.areAdded ? add(x, gatherRows(positions, this.tableFor(x, last + 1))) : x;
  }

  override dispose(): void {
    super.dispose();
    for (const table of this.#tables.splice(0)) table.dispose();
  }

  private tableFor(x: Tensor, needed: number): Tensor {
    if (this.#kind.kind === "learned" && needed > this.#kind.length) {
      throw new ConfigError(
        `[positions] the model has learned ${this.#kind.length} positions, the text needs ${needed}`,
        "Cut the text, or train with more positions or with rotary ones.",
      );
    }
    return this.weight?.value ?? this.sines(x, needed);
  }

  private sines(x: Tensor, positions: number): Tensor {
    const held = this.#tables.at(-1);
    if (held !== undefined && held.device === x.device && held.shape[0]! >= positions) return held;
    if (held !== undefined && held.device !== x.device)
      for (const table of this.#tables.splice(0)) table.dispose();
    const length = roomFor(positions);
    const values = new Float64Array(length * this.#width);
    for (let p = 0; p < length; p++) {
      for (let i = 0; i < this.#width; i++) {
        const angle = p / 10_000 ** ((2 * Math.floor(i / 2)) / this.#width);
        values[p * this.#width + i] = i % 2 === 0 ? Math.sin(angle) : Math.cos(angle);
      }
    }
    const table = tensor(x.device, values, [length, this.#width], { persistent: true });
    this.#tables.push(table);
    return table;
  }
}
