import { onnxFile } from "./onnx.ts";
import { type PeerModule, randomValues } from "./task.ts";

/** The little of the package that is used; it is installed apart, so its types are not here. */
interface Ort {
  readonly env: { readonly wasm: { numThreads: number } };
  readonly Tensor: new (dtype: string, values: Float32Array, shape: readonly number[]) => unknown;
  readonly InferenceSession: {
    create(
      file: Uint8Array,
      options: object,
    ): Promise<{ run(inputs: Record<string, unknown>): Promise<unknown> }>;
  };
}

/** The peer onnxruntime-web on WebAssembly, with as many threads as asked for. */
export const prepare: PeerModule["prepare"] = async ({ onnx }, threads) => {
  if (onnx === undefined) return undefined;
  const name = "onnxruntime-web";
  const ort = (await import(name)) as Ort;
  ort.env.wasm.numThreads = threads;
  const session = await ort.InferenceSession.create(onnxFile(onnx), { executionProviders: ["wasm"] });
  const inputs: Record<string, unknown> = {};
  for (const [input, shape] of Object.entries(onnx.inputs)) {
    inputs[input] = new ort.Tensor("float32", randomValues(shape), shape);
  }
  return () => session.run(inputs);
};
