/** Golden cases of attention as jobs. */
import { readFileSync } from "node:fs";
import type { AttentionCase, Results } from "./attention-case.ts";

const folder = new URL("../golden/ops/", import.meta.url);

/** Every softmax case. */
export const goldenNames = ["causal", "full", "gqa", "window"].flatMap((kind) => [
  `softmax-${kind}-s0`,
  `softmax-${kind}-s1`,
]);

interface Entry {
  readonly shape: readonly number[];
  readonly data_offsets: readonly [number, number];
}

/** Tensors, all float64, and the metadata of a golden file. */
export function readGolden(name: string): {
  readonly meta: Readonly<Record<string, unknown>>;
  readonly tensors: Readonly<
    Record<string, { readonly data: Float64Array; readonly shape: readonly number[] }>
  >;
} {
  const bytes = readFileSync(new URL(`${name}.safetensors`, folder));
  const length = Number(bytes.readBigUInt64LE(0));
  const { __metadata__, ...entries } = JSON.parse(bytes.toString("utf8", 8, 8 + length));
  const read = ({ shape, data_offsets: [from, to] }: Entry) => ({
    shape,
    data: new Float64Array(
      bytes.buffer.slice(bytes.byteOffset + 8 + length + from, bytes.byteOffset + 8 + length + to),
    ),
  });
  const tensors = Object.fromEntries(
    Object.entries(entries).map(([key, entry]) => [key, read(entry as Entry)]),
  );
  return { meta: JSON.parse(__metadata__.golden), tensors };
}

/** A softmax case with its expected output and gradients. */
export function goldenCase(name: string): { readonly of: AttentionCase; readonly expected: Results } {
  const { meta, tensors } = readGolden(name);
  const [batch, time, queryHeads, keyWidth] = tensors["in.q"]!.shape as [number, number, number, number];
  const [, keyTime, keyHeads] = tensors["in.k"]!.shape as [number, number, number];
  const valueWidth = tensors["in.v"]!.shape[3]!;
  const data = (key: string): Float64Array => tensors[key]!.data;
  const window = meta["window"];
  return {
    of: {
      sizes: { batch, time, keyTime, queryHeads, keyHeads, keyWidth, valueWidth },
      ...{ scale: keyWidth ** -0.5, causal: meta["causal"] === true },
      ...(typeof window === "number" ? { window } : {}),
      ...{ q: data("in.q"), k: data("in.k"), v: data("in.v"), dOutput: data("ct.output") },
    },
    expected: { output: data("out.output"), q: data("grad.q"), k: data("grad.k"), v: data("grad.v") },
  };
}
