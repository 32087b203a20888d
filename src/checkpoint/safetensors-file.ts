import { DisposedError, FormatError, isLinnetError, ShapeError } from "../errors.ts";
import { quote } from "./header-json.ts";
import { nodeFiles, type ReadableFile, readAt, readInto, writeAll } from "./node-files.ts";
import { layOut, type TensorEntry, type TensorSource } from "./safetensors.ts";
import { safetensorsBytes } from "./safetensors-dtype.ts";
import {
  headerLength,
  parseHeader,
  prefixBytes,
  type SafetensorsHeader,
  type TensorInfo,
} from "./safetensors-header.ts";

interface Abortable {
  readonly signal?: AbortSignal;
}

/** A safetensors file that is open: its header has been read, tensors are read when asked for. */
export class SafetensorsFile {
  /** What errors call the file. */
  readonly name: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  readonly #handle: ReadableFile;
  readonly #dataStart: number;
  #isOpen = true;

  /** Made by `openSafetensors`. */
  constructor(name: string, handle: ReadableFile, header: SafetensorsHeader, dataStart: number) {
    this.name = name;
    this.metadata = header.metadata;
    this.tensors = header.tensors;
    this.#handle = handle;
    this.#dataStart = dataStart;
  }

  /**
   * Reads one tensor, into `target` where given, which must have its number of bytes.
   *
   * Throws FormatError for a name that the file does not hold or a file that shrank, ShapeError for a target of another
   * length, DisposedError after `close`, and the reason of an aborted signal.
   */
  async read(
    tensor: string,
    { target, signal }: Abortable & { target?: Uint8Array } = {},
  ): Promise<TensorEntry> {
    const info = this.tensors.get(tensor);
    if (info === undefined) {
      const some = [...this.tensors.keys()].slice(0, 3).map(quote).join(", ");
      throw new FormatError(
        `[safetensors] ${this.name} has no tensor ${quote(tensor)}: expected one of its ${this.tensors.size}, such as ${some || "none"}`,
      );
    }
    if (!this.#isOpen) {
      throw new DisposedError(
        `[safetensors] ${this.name} was closed: expected an open file to read ${quote(tensor)}`,
      );
    }
    const { dtype, shape, begin, end } = info;
    const bytes = target ?? new Uint8Array(end - begin);
    if (bytes.length !== end - begin) {
      throw new ShapeError(
        `[safetensors] target has the wrong length for ${quote(tensor)}: expected ${end - begin} bytes, got ${bytes.length}`,
      );
    }
    const count = await readAt(this.#handle, bytes, this.#dataStart + begin, signal);
    if (count < bytes.length) {
      throw new FormatError(
        `[safetensors] ${this.name} shrank since it was opened: expected ${bytes.length} bytes of ${quote(tensor)}, got ${count}`,
      );
    }
    return { dtype, shape, bytes };
  }

  /**
   * Reads a piece of the data that tensors lie in, `begin` bytes behind its beginning, into targets that it fills one after
   * the other: what streams through many tensors.
   *
   * Throws FormatError for a file that shrank, DisposedError after `close`, and the reason of an aborted signal.
   */
  async readPiece(begin: number, targets: readonly Uint8Array[], { signal }: Abortable = {}): Promise<void> {
    if (!this.#isOpen) {
      throw new DisposedError(`[safetensors] ${this.name} was closed: expected an open file to read from`);
    }
    const length = targets.reduce((sum, target) => sum + target.length, 0);
    const count = await readInto(this.#handle, targets, this.#dataStart + begin, signal);
    if (count === length) return;
    throw new FormatError(
      `[safetensors] ${this.name} shrank since it was opened: expected ${length} bytes from ${begin} of its data on, got ${count}`,
    );
  }

  /** Lets go of the file; twice is harmless. */
  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    await this.#handle.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/**
 * Opens a safetensors file on disk and reads its header alone. Node only.
 *
 * Throws FormatError where the file is missing, no plain file, or not as the format says; UnsupportedError in browsers.
 */
export async function openSafetensors(path: string, { signal }: Abortable = {}): Promise<SafetensorsFile> {
  const files = await nodeFiles("openSafetensors");
  signal?.throwIfAborted();
  // asked before opening, for opening a pipe waits for its writer
  const status = await files.stat(path).catch((cause) => refuse(path, "opened", cause));
  if (!status.isFile()) {
    throw new FormatError(`[safetensors] ${path} cannot be opened: expected a plain file, got another kind`);
  }
  const handle = await files.open(path, "r").catch((cause) => refuse(path, "opened", cause));
  return openHandle(path, handle, status.size, signal === undefined ? {} : { signal });
}

/**
 * Reads the header of a file that is open already, wherever it lies: what `openSafetensors` does with one on disk. The
 * handle is closed where the file is refused.
 */
export async function openHandle(
  name: string,
  handle: ReadableFile,
  size: number,
  { signal }: Abortable = {},
): Promise<SafetensorsFile> {
  try {
    const prefix = new Uint8Array(prefixBytes);
    const count = await readAt(handle, prefix, 0, signal);
    const length = headerLength(prefix.subarray(0, count), name, size);
    const header = new Uint8Array(length);
    const headerCount = await readAt(handle, header, prefixBytes, signal);
    const dataStart = prefixBytes + length;
    const checked = parseHeader(header.subarray(0, headerCount), name, size - dataStart);
    return new SafetensorsFile(name, handle, checked, dataStart);
  } catch (error) {
    await handle.close();
    if (isLinnetError(error) || signal?.aborted) throw error;
    return refuse(name, "read", error);
  }
}

/**
 * Writes tensors to a file on disk in the safetensors format, one after the other. Node only.
 *
 * The file appears whole or not at all: bytes go to a temporary name beside it, reach the disk, and take its name in one
 * step; what was there before stays until then. A source whose bytes come from a function is asked when its turn comes,
 * so no more than one tensor need be in memory. Same order and errors as `writeSafetensors`; FormatError where the
 * system refuses, UnsupportedError in browsers, and the reason of an aborted signal.
 */
export async function saveSafetensors(
  path: string,
  tensors: Readonly<Record<string, TensorSource>> | Iterable<readonly [string, TensorSource]>,
  metadata: Readonly<Record<string, string>> = {},
  { signal }: Abortable = {},
): Promise<void> {
  const { head, order } = layOut(tensors, metadata);
  const files = await nodeFiles("saveSafetensors");
  signal?.throwIfAborted();
  const temporary = `${folderOf(path)}.linnet-${globalThis.crypto.randomUUID()}.tmp`;
  const handle = await files.open(temporary, "wx").catch((cause) => refuse(path, "written", cause));
  try {
    try {
      await writeAll(handle, head, signal);
      for (const [name, source] of order) await writeAll(handle, await bytesOf(name, source), signal);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await files.rename(temporary, path);
  } catch (error) {
    await files.rm(temporary, { force: true });
    if (signal?.aborted || !isSystemError(error)) throw error;
    return refuse(path, "written", error);
  }
  await syncFolder(path, files);
}

async function bytesOf(name: string, { dtype, shape, bytes }: TensorSource): Promise<Uint8Array> {
  if (typeof bytes !== "function") return bytes;
  const made = await bytes();
  const expected = shape.reduce((product, size) => product * size, safetensorsBytes(dtype));
  if (made.length !== expected) {
    throw new ShapeError(
      `[saveSafetensors] bytes of ${quote(name)} have the wrong length: expected ${expected}, got ${made.length}`,
    );
  }
  return made;
}

function folderOf(path: string): string {
  return path.replace(/[^\\/]*$/, "") || "./";
}

/** A new name outlasts a power cut once its folder is on the disk; systems that cannot do that do it by themselves. */
async function syncFolder(path: string, files: Awaited<ReturnType<typeof nodeFiles>>): Promise<void> {
  const handle = await files.open(folderOf(path), "r").catch(() => undefined);
  await handle?.sync().catch(() => undefined);
  await handle?.close();
}

function isSystemError(error: unknown): boolean {
  return error instanceof Error && typeof (error as NodeJS.ErrnoException).syscall === "string";
}

function refuse(path: string, done: string, cause: unknown): never {
  const { code, message } = cause as NodeJS.ErrnoException;
  throw new FormatError(`[safetensors] ${path} cannot be ${done}: ${code ?? message}`, undefined, { cause });
}
