import type { OnnxGraph } from "./onnx.ts";

/** A job described so that every peer can do it in its own words. */
export interface PeerTask {
  /** For the onnxruntime peers: a graph fed with random values. */
  readonly onnx?: OnnxGraph;
  /** For jax: one of the functions of `jax.ts`, and the shapes of its arguments. */
  readonly jax?: { readonly name: string; readonly shapes: readonly (readonly number[])[] };
}

/** A prepared job: one call does it once. */
export type PeerJob = () => unknown;

/** What a file of this folder that speaks for a peer exports. */
export interface PeerModule {
  /** Undefined where the peer cannot do such a task. */
  prepare(task: PeerTask, threads: number): Promise<PeerJob | undefined>;
}

/** Random values in [-0.5, 0.5). */
export function randomValues(shape: readonly number[]): Float32Array<ArrayBuffer> {
  return Float32Array.from({ length: shape.reduce((x, y) => x * y, 1) }, () => Math.random() - 0.5);
}
