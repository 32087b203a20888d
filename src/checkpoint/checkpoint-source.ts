import { FormatError } from "../errors.ts";
import { nodeFiles, type ReadableFile } from "./node-files.ts";

/** A file that is open for reading at any place, and how long it is. */
export interface OpenedFile {
  readonly name: string;
  readonly size: number;
  readonly handle: ReadableFile;
}

/** Where the files of a model lie: a folder, a list, or an address. */
export interface CheckpointSource {
  /** What errors call it. */
  readonly name: string;
  /** Opens a file by its plain name; undefined where there is none. */
  open(file: string, signal?: AbortSignal): Promise<OpenedFile | undefined>;
}

/** Longest text file that is read: a tokenizer's vocabulary is some tens of megabytes. */
const maxTextBytes = 256 * 2 ** 20;

/** The text of a file of a source; undefined where there is none. */
export async function readText(
  source: CheckpointSource,
  file: string,
  signal?: AbortSignal,
): Promise<string | undefined> {
  const opened = await source.open(file, signal);
  if (opened === undefined) return undefined;
  const { handle, size, name } = opened;
  try {
    if (size > maxTextBytes) {
      throw new FormatError(
        `[checkpoint] ${name} is too long: expected at most ${maxTextBytes} bytes, got ${size}`,
      );
    }
    const bytes = new Uint8Array(size);
    let done = 0;
    while (done < size) {
      signal?.throwIfAborted();
      const { bytesRead } = await handle.read(bytes, done, size - done, done);
      if (bytesRead === 0) break;
      done += bytesRead;
    }
    return new TextDecoder().decode(bytes.subarray(0, done));
  } finally {
    await handle.close();
  }
}

/** The files of a folder on disk. Node only. */
export async function folderSource(folder: string): Promise<CheckpointSource> {
  const files = await nodeFiles("load");
  const status = await files.stat(folder).catch(() => undefined);
  if (status === undefined || !status.isDirectory()) {
    throw new FormatError(
      `[load] ${folder} is no folder: expected one with config.json and model.safetensors, got ${status === undefined ? "nothing there" : "a file"}`,
    );
  }
  return { name: folder, open: (file) => openOnDisk(`${folder.replace(/[\\/]+$/, "")}/${file}`) };
}

/** A file on disk; undefined where there is none. */
export async function openOnDisk(path: string): Promise<OpenedFile | undefined> {
  const files = await nodeFiles("load");
  // asked before opening, for opening a pipe waits for its writer
  const status = await files.stat(path).catch(() => undefined);
  if (status === undefined) return undefined;
  if (!status.isFile()) {
    throw new FormatError(`[load] ${path} cannot be opened: expected a plain file, got another kind`);
  }
  const handle = await files.open(path, "r").catch((cause: Error) => {
    throw new FormatError(`[load] ${path} cannot be opened: ${cause.message}`, undefined, { cause });
  });
  return { name: path, size: status.size, handle };
}

/** A file that a list gives by its bytes, such as one of a browser's `File` objects. */
export interface NamedBytes {
  readonly name: string;
  readonly bytes: Uint8Array | Blob;
}

/** The last part of a path or address. */
export function baseName(path: string): string {
  return path
    .replace(/[?#].*$/, "")
    .split(/[\\/]/)
    .at(-1)!;
}

/**
 * Files given one by one: paths, addresses, `File` objects or bytes with a name.
 *
 * @param openPath Opens one that is given as a path or address.
 */
export function listSource(
  list: readonly (string | NamedBytes | File)[],
  openPath: (path: string, signal?: AbortSignal) => Promise<OpenedFile | undefined>,
): CheckpointSource {
  const byName = new Map<string, string | NamedBytes | File>();
  for (const file of list) byName.set(typeof file === "string" ? baseName(file) : file.name, file);
  return {
    name: "the list of files",
    open: async (name, signal) => {
      const file = byName.get(name);
      if (file === undefined) return undefined;
      if (typeof file === "string") return openPath(file, signal);
      const bytes = "bytes" in file && typeof file.bytes !== "function" ? file.bytes : (file as File);
      const size = bytes instanceof Uint8Array ? bytes.length : bytes.size;
      return { name, size, handle: handleOf(bytes) };
    },
  };
}

function handleOf(bytes: Uint8Array | Blob): ReadableFile {
  return {
    read: async (target, offset, length, position) => {
      const piece =
        bytes instanceof Uint8Array
          ? bytes.subarray(position, position + length)
          : new Uint8Array(await bytes.slice(position, position + length).arrayBuffer());
      target.set(piece, offset);
      return { bytesRead: piece.length };
    },
    close: async () => {},
  };
}
