import type * as Files from "node:fs/promises";
import { nodeFiles } from "../checkpoint/node-files.ts";
import { ConfigError, FormatError } from "../errors.ts";

/** A document, or a piece of one that is too long to hold at once. Pieces come in order, put together they are it. */
export interface TextPiece {
  /** The file, with the line in a `.jsonl` file. */
  readonly name: string;
  readonly text: string;
  /** Whether the document ends with this piece. */
  readonly ends: boolean;
}

/** How a corpus is read. */
export interface CorpusOptions {
  /** Characters of a piece, about; longer documents come in several. A million unless given. */
  readonly pieceLength?: number;
  /** Field of a `.jsonl` file's lines that holds the text; `text` unless given. */
  readonly field?: string;
}

const who = "corpus";
const readBytes = 1 << 20;
/** Longest line of a `.jsonl` file; more does not fit a string. */
const longestLine = 256 * 1024 * 1024;

/**
 * The documents of a file, of all files of a folder (sorted by name, hidden ones left out), or of the lines of `.jsonl`
 * files. Files are read piece by piece, so that a corpus need not fit in memory.
 *
 * Pieces are cut before a line's end or before a blank, where byte-pair tokenizers cut as well: tokens of the pieces are
 * tokens of the whole. Bytes that are no UTF-8 become U+FFFD.
 *
 * @throws ConfigError for a path that is not there; FormatError for a folder without files, an empty or binary file, a
 * line that is not JSON or has no text.
 */
export async function* readDocuments(path: string, options: CorpusOptions = {}): AsyncGenerator<TextPiece> {
  for (const file of await textFiles(path)) {
    if (file.endsWith(".jsonl")) yield* jsonDocuments(file, options.field ?? "text");
    else yield* filePieces(file, options.pieceLength ?? 1_000_000);
  }
}

/**
 * The whole text of a corpus, documents joined by line ends.
 *
 * @param limit Characters at most.
 * @throws FormatError beyond the limit, or where there is no text at all, beside what `readDocuments` throws.
 */
export async function readText(path: string, limit = 256 * 1024 * 1024): Promise<string> {
  const parts: string[] = [];
  let length = 0;
  for await (const { text, ends } of readDocuments(path)) {
    length += text.length + 1;
    if (length > limit) {
      throw new FormatError(
        `[${who}] ${path} is too large to be read at once: expected at most ${limit.toLocaleString("en")} characters`,
        "Turn it into a token file with writeTokens, or cut it into parts.",
      );
    }
    parts.push(ends ? `${text}\n` : text);
  }
  const text = parts.join("").slice(0, -1);
  if (text.trim() === "") throw new FormatError(`[${who}] ${path} holds no text`);
  return text;
}

/** Files of a path in the order of their names. */
export async function textFiles(path: string): Promise<string[]> {
  const files = await nodeFiles(who);
  const status = await statusOf(files, path);
  if (!status.isDirectory()) return [path];
  const entries = await files.readdir(path, { recursive: true, withFileTypes: true });
  const found = entries
    .filter((entry) => entry.isFile())
    .map((entry) => `${entry.parentPath ?? entry.path}/${entry.name}`)
    .filter((file) => !file.slice(path.length).includes("/."))
    .sort();
  if (found.length === 0) throw new FormatError(`[${who}] the folder ${path} holds no files`);
  return found;
}

/** What a path is; a ConfigError where there is nothing, with why. */
export async function statusOf(files: typeof Files, path: string): ReturnType<typeof Files.stat> {
  try {
    return await files.stat(path);
  } catch (cause) {
    const { code } = cause as { code?: string };
    if (code === "ENOENT" || code === "ENOTDIR")
      throw new ConfigError(`[${who}] there is no file or folder ${path}`);
    throw new ConfigError(`[${who}] ${path} cannot be read: ${(cause as Error).message}`);
  }
}

/** Text of a file as it is decoded; never empty. */
async function* decoded(file: string): AsyncGenerator<string> {
  const files = await nodeFiles(who);
  let handle: Files.FileHandle;
  try {
    handle = await files.open(file);
  } catch (cause) {
    throw new ConfigError(`[${who}] ${file} cannot be read: ${(cause as Error).message}`);
  }
  try {
    const decoder = new TextDecoder("utf-8");
    const bytes = new Uint8Array(readBytes);
    for (let first = true; ; first = false) {
      const { bytesRead } = await handle.read(bytes, 0, readBytes);
      if (first && bytesRead === 0) throw new FormatError(`[${who}] ${file} is empty`);
      if (first && bytes.subarray(0, Math.min(bytesRead, 8192)).includes(0))
        throw new FormatError(`[${who}] ${file} is binary: expected text in UTF-8`);
      const text = decoder.decode(bytes.subarray(0, bytesRead), { stream: bytesRead > 0 });
      if (text !== "") yield text;
      if (bytesRead === 0) return;
    }
  } finally {
    await handle.close();
  }
}

async function* filePieces(file: string, pieceLength: number): AsyncGenerator<TextPiece> {
  let text = "";
  for await (const more of decoded(file)) {
    text += more;
    for (let cut = safeCut(text, pieceLength); cut > 0; cut = safeCut(text, pieceLength)) {
      yield { name: file, text: text.slice(0, cut), ends: false };
      text = text.slice(cut);
    }
  }
  yield { name: file, text, ends: true };
}

/**
 * Where a text longer than `length` is cut: before a line end that follows a character that is no blank, else before
 * such a blank, else between characters; 0 for a text that is not longer.
 */
export function safeCut(text: string, length: number): number {
  if (text.length <= length) return 0;
  for (const blank of ["\n", " "]) {
    for (let at = text.lastIndexOf(blank, length); at > 0; at = text.lastIndexOf(blank, at - 1))
      if (!/\s/.test(text[at - 1]!)) return at;
  }
  const isPair = /[\uDC00-\uDFFF]/.test(text[length]!);
  return isPair ? length - 1 : length;
}

async function* jsonDocuments(file: string, field: string): AsyncGenerator<TextPiece> {
  let number = 0;
  for await (const line of lines(file)) {
    number++;
    if (line.trim() === "") continue;
    yield { name: `${file}:${number}`, text: textOf(line, number, file, field), ends: true };
  }
}

async function* lines(file: string): AsyncGenerator<string> {
  let rest: string[] = [];
  let length = 0;
  for await (const text of decoded(file)) {
    const parts = text.split("\n");
    for (const part of parts.slice(0, -1)) {
      yield [...rest, part].join("");
      rest = [];
      length = 0;
    }
    rest.push(parts.at(-1)!);
    length += parts.at(-1)!.length;
    if (length > longestLine) {
      throw new FormatError(
        `[${who}] a line of ${file} is longer than ${longestLine.toLocaleString("en")} characters`,
      );
    }
  }
  yield rest.join("");
}

function textOf(line: string, number: number, file: string, field: string): string {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw new FormatError(`[${who}] line ${number} of ${file} is not JSON`, undefined, { cause });
  }
  const text = (value as Record<string, unknown> | null)?.[field];
  if (typeof text === "string") return text;
  throw new FormatError(`[${who}] line ${number} of ${file} has no field "${field}" with text`);
}
