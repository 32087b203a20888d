import { onnxFile } from "./onnx.ts";
import { type PeerModule, randomValues } from "./task.ts";

/** The little of the package that is used; it is installed apart, so its types are not here. */
interface Ort {
  readonly Tensor: new (dtype: string, values: Float32Array, shape: readonly number[]) => unknown;
  readonly InferenceSession: {
    create(
      file: Uint8Array,
      options: object,
    ): Promise<{ run(inputs: Record<string, unknown>): Promise<unknown> }>;
  };
}

/** The peer onnxruntime-node: native code with the widest vectors of the machine. */
export const prepare: PeerModule["prepare"] = async ({ onnx }, threads) => {
  if (onnx === undefined) return undefined;
  const name = "onnxruntime-node";
  const loaded = (await import(name)) as Ort & { readonly default?: Ort };
  const ort = loaded.default ?? loaded;
  const session = await ort.InferenceSession.create(onnxFile(onnx), { intraOpNumThreads: threads });
  const inputs: Record<string, unknown> = {};
  for (const [input, shape] of Object.entries(onnx.inputs)) {
    inputs[input] = new ort.Tensor("float32", randomValues(shape), shape);
  }
  return () => session.run(inputs);
};
