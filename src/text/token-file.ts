import type * as SyncFiles from "node:fs";
import { nodeFiles, writeAll } from "../checkpoint/node-files.ts";
import { FormatError, UnsupportedError } from "../errors.ts";
import type { TextPiece } from "./corpus.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** Token ids in a row, in memory (an Int32Array is one) or in a file. */
export interface TokenSource {
  readonly length: number;
  /** Ids [from, to). */
  subarray(from: number, to: number): Int32Array;
}

const who = "tokens";
const magic = "LINNETTK";
const headerBytes = 64;
const version = 1;
const littleEndian = true;

/** What a token file says about itself. */
interface Header {
  readonly width: 2 | 4;
  readonly tokens: number;
  readonly documents: number;
  readonly textBytes: number;
  /** Ids between two documents, 0 or 1. */
  readonly parting: number;
}

/**
 * Writes the ids of a corpus of any size to a file, document after document, each but the last followed by the
 * tokenizer's separator where it has one. Memory stays that of one piece.
 *
 * The file: a header of 64 bytes, ids as little-endian uint16 (int32 where the vocabulary needs it), then the first id of
 * every document as float64. It is written under another name and renamed at the end.
 *
 * @param documents Such as `readDocuments` yields.
 * @returns Tokens, documents and bytes of text.
 * @throws FormatError where there is no text or the file cannot be written; an older file stays as it was.
 */
export async function writeTokens(
  path: string,
  documents: AsyncIterable<TextPiece> | Iterable<TextPiece>,
  tokenizer: Tokenizer,
  options: { readonly signal?: AbortSignal; readonly onProgress?: (tokens: number) => void } = {},
): Promise<{ readonly tokens: number; readonly documents: number; readonly textBytes: number }> {
  const files = await nodeFiles(who);
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    const handle = await files.open(temporary, "w");
    try {
      const header = await writeBody(handle, documents, tokenizer, options);
      if (header.tokens === 0) throw new FormatError(`[${who}] the corpus holds no text`);
      await handle.write(headerOf(header), 0, headerBytes, 0);
      await handle.sync();
      await handle.close();
      await files.rename(temporary, path);
      return { tokens: header.tokens, documents: header.documents, textBytes: header.textBytes };
    } finally {
      await handle.close().catch(() => {});
    }
  } catch (cause) {
    await files.rm(temporary, { force: true }).catch(() => {});
    if ((cause as { code?: string }).code?.startsWith("E_")) throw cause;
    if ((cause as Error).name === "AbortError") throw cause;
    throw new FormatError(`[${who}] ${path} could not be written: ${(cause as Error).message}`, undefined, {
      cause,
    });
  }
}

async function writeBody(
  handle: Parameters<typeof writeAll>[0],
  documents: AsyncIterable<TextPiece> | Iterable<TextPiece>,
  tokenizer: Tokenizer,
  { signal, onProgress }: { readonly signal?: AbortSignal; readonly onProgress?: (tokens: number) => void },
): Promise<Header> {
  const { vocabularySize, separator } = tokenizer;
  const width = vocabularySize <= 65_536 ? 2 : 4;
  const starts: number[] = [];
  const utf8 = new TextEncoder();
  let [tokens, textBytes, begins] = [0, 0, true];
  await writeAll(handle, new Uint8Array(headerBytes), signal);
  for await (const { text, ends } of documents) {
    signal?.throwIfAborted();
    const ids = tokenizer.encode(text);
    const parted = begins && starts.length > 0 && separator !== undefined ? [separator] : [];
    if (begins) starts.push(tokens + parted.length);
    begins = ends;
    await writeAll(handle, bytesOf([...parted], width), signal);
    await writeAll(handle, bytesOf(ids, width), signal);
    tokens += parted.length + ids.length;
    textBytes += utf8.encode(text).length;
    onProgress?.(tokens);
  }
  await writeAll(handle, new Uint8Array(Float64Array.from(starts).buffer), signal);
  return { width, tokens, documents: starts.length, textBytes, parting: separator === undefined ? 0 : 1 };
}

function bytesOf(ids: ArrayLike<number>, width: 2 | 4): Uint8Array {
  return new Uint8Array((width === 2 ? Uint16Array.from(ids) : Int32Array.from(ids)).buffer);
}

function headerOf({ width, tokens, documents, textBytes, parting }: Header): Uint8Array {
  const bytes = new Uint8Array(headerBytes);
  bytes.set(new TextEncoder().encode(magic));
  const view = new DataView(bytes.buffer);
  view.setUint32(8, version, littleEndian);
  view.setUint32(12, width, littleEndian);
  for (const [i, value] of [tokens, documents, textBytes, parting].entries())
    view.setFloat64(16 + 8 * i, value, littleEndian);
  return bytes;
}

/** Node's file functions that wait. */
async function syncFiles(): Promise<typeof SyncFiles> {
  if ((globalThis.process as NodeJS.Process | undefined)?.versions?.node === undefined)
    throw new UnsupportedError(`[${who}] there are no files here: expected Node, got another host`);
  const name = "node:fs";
  return (await import(/* @vite-ignore */ /* webpackIgnore: true */ name)) as typeof SyncFiles;
}

/**
 * The ids of a token file, read as they are asked for: a corpus larger than memory is a `TokenSource` as an array is.
 *
 * @throws FormatError for a file that is none, was cut short or has another version.
 */
export async function openTokens(path: string): Promise<TokenFile> {
  const files = await syncFiles();
  let descriptor: number;
  try {
    descriptor = files.openSync(path, "r");
  } catch (cause) {
    throw new FormatError(`[${who}] ${path} cannot be opened: ${(cause as Error).message}`, undefined, {
      cause,
    });
  }
  try {
    const header = readHeader(files, descriptor, path);
    return new TokenFile(files, descriptor, path, header);
  } catch (error) {
    files.closeSync(descriptor);
    throw error;
  }
}

function readHeader(files: typeof SyncFiles, descriptor: number, path: string): Header {
  const bytes = new Uint8Array(headerBytes);
  const read = files.readSync(descriptor, bytes, 0, headerBytes, 0);
  const view = new DataView(bytes.buffer);
  const name = new TextDecoder().decode(bytes.subarray(0, 8));
  if (read < headerBytes || name !== magic || view.getUint32(8, littleEndian) !== version)
    throw new FormatError(`[${who}] ${path} is no token file of version ${version}`);
  const field = (i: number): number => view.getFloat64(16 + 8 * i, littleEndian);
  const [tokens, documents, textBytes, parting] = [field(0), field(1), field(2), field(3)];
  const width = view.getUint32(12, littleEndian) === 2 ? 2 : 4;
  const expected = headerBytes + width * tokens + 8 * documents;
  const { size } = files.fstatSync(descriptor);
  if (size === expected) return { width, tokens, documents, textBytes, parting };
  throw new FormatError(
    `[${who}] ${path} was cut short or changed: expected ${expected} bytes, got ${size}`,
    "Write it again from its text.",
  );
}

/** An open token file. `close` it, or leave that to `using`. */
export class TokenFile implements TokenSource {
  readonly path: string;
  readonly length: number;
  /** Bytes of UTF-8 that the ids stand for. */
  readonly textBytes: number;
  readonly #files: typeof SyncFiles;
  readonly #descriptor: number;
  readonly #width: 2 | 4;
  readonly #starts: Float64Array;
  readonly #parting: number;

  constructor(files: typeof SyncFiles, descriptor: number, path: string, header: Header) {
    this.path = path;
    this.length = header.tokens;
    this.textBytes = header.textBytes;
    this.#files = files;
    this.#descriptor = descriptor;
    this.#width = header.width;
    this.#parting = header.parting;
    const bytes = new Uint8Array(8 * header.documents);
    files.readSync(descriptor, bytes, 0, bytes.length, headerBytes + header.width * header.tokens);
    this.#starts = new Float64Array(bytes.buffer);
  }

  get documents(): number {
    return this.#starts.length;
  }

  /** Ids [from, to), as they are in the file now; ends beyond the file are cut. */
  subarray(from: number, to: number = this.length): Int32Array {
    const first = Math.min(Math.max(0, from), this.length);
    const count = Math.max(0, Math.min(to, this.length) - first);
    const bytes = new Uint8Array(this.#width * count);
    const place = headerBytes + this.#width * first;
    const read = this.#files.readSync(this.#descriptor, bytes, 0, bytes.length, place);
    if (read !== bytes.length)
      throw new FormatError(`[${who}] ${this.path} became shorter while it was read`);
    return this.#width === 2 ? Int32Array.from(new Uint16Array(bytes.buffer)) : new Int32Array(bytes.buffer);
  }

  /** Ids of document `i` without the separator behind it. */
  document(i: number): Int32Array {
    return this.subarray(...this.#bounds(i));
  }

  /** How many ids `document(i)` has. */
  documentLength(i: number): number {
    const [from, to] = this.#bounds(i);
    return to - from;
  }

  #bounds(i: number): [from: number, to: number] {
    const from = this.#starts[i];
    if (from === undefined)
      throw new FormatError(`[${who}] there is no document ${i}: expected one of ${this.documents}`);
    const next = this.#starts[i + 1];
    return [from, next === undefined ? this.length : next - this.#parting];
  }

  close(): void {
    this.#files.closeSync(this.#descriptor);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
