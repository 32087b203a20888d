/** Golden files of one op as jobs of the recurrence. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { readSafetensors } from "../../src/checkpoint/safetensors.ts";

/** A golden file: tensors by name, each F64, and what its metadata says. */
export interface Golden {
  readonly file: string;
  readonly shape: Readonly<Record<"B" | "T" | "H" | "K" | "V", number>>;
  readonly op: string;
  readonly scale: number;
  readonly featureMap: string | undefined;
  readonly normalize: boolean;
  readonly causal: boolean;
  tensor(name: string): Float64Array | undefined;
}

const folder = fileURLToPath(new URL("../golden/ops", import.meta.url));

/** Every golden file whose name begins with one of the words. */
export function goldenFiles(words: readonly string[]): Golden[] {
  const files = readdirSync(folder).filter((file) => words.some((word) => file.startsWith(word)));
  return files.map((file) => {
    const { metadata, tensors } = readSafetensors(readFileSync(join(folder, file)), { name: file });
    const golden = JSON.parse(metadata.golden!);
    return {
      file: file.replace(".safetensors", ""),
      shape: golden.shape,
      op: golden.op,
      scale: golden.scale === "K^-0.5" ? golden.shape.K ** -0.5 : golden.scale,
      featureMap: golden.featureMap,
      normalize: golden.normalize ?? false,
      causal: golden.causal ?? true,
      tensor(name) {
        const entry = tensors.get(name);
        return entry && new Float64Array(Uint8Array.from(entry.bytes).buffer);
      },
    };
  });
}
