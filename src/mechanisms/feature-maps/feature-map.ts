import type { Tensor } from "../../autograd/tensor.ts";
import type { Random } from "../../tensor/random.ts";
import type { Pointwise } from "./pointwise.ts";

/** A matrix `[count, K]` in row-major order: the random part of a map. */
export interface Projection {
  readonly values: Float64Array;
  readonly count: number;
}

/** φ: what queries and keys pass through, so that φ(q)·φ(k) stands for a kernel of q and k. */
export interface FeatureMap {
  readonly id: string;
  /** φ in a line, with its source. */
  readonly equation: string;
  /** Features of a key of width K; `count` rows of the projection where the map has one. */
  width(keyWidth: number, count?: number): number;
  /** φ(q)·φ(k) > 0 whatever q and k are: a normaliser cannot vanish. */
  readonly isPositive: boolean;
  /** Gradients flow through it. */
  readonly isDifferentiable: boolean;
  /** What `apply` does to every channel alone, where that is all it does: kernels then map rows as they read them. */
  readonly pointwise?: Pointwise;
  /** The random part for keys of a width, where there is one; `count` rows, a default of the map unless given. */
  draw?(keyWidth: number, random: Random, count?: number): Projection;
  /** `x [B,T,H,K]` → `[B,T,H,F]`; `projection [count, K]` is what `draw` gave. */
  apply(x: Tensor, projection?: Tensor): Tensor;
}
