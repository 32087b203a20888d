import type * as Files from "node:fs/promises";
import { UnsupportedError } from "../errors.ts";

/**
 * Node's file functions, looked up when a call needs them, so that browsers and bundlers never see the import.
 *
 * Throws UnsupportedError where there are no files.
 */
export async function nodeFiles(who: string): Promise<typeof Files> {
  const host = globalThis.process as NodeJS.Process | undefined;
  if (host?.versions?.node === undefined) {
    throw new UnsupportedError(
      `[${who}] there are no files here: expected Node, got another host`,
      "Read bytes that you fetched with readSafetensors.",
    );
  }
  const builtin = (host as { getBuiltinModule?: (id: string) => unknown }).getBuiltinModule?.(
    "node:fs/promises",
  );
  if (builtin !== undefined) return builtin as typeof Files;
  const name = "node:fs/promises";
  return (await import(/* @vite-ignore */ /* webpackIgnore: true */ name)) as typeof Files;
}

/** Longest piece of one system call. */
const pieceBytes = 2 ** 30;

/** What is used of an open file; the declarations of a browser's program know no other. */
export interface ReadableFile {
  read(target: Uint8Array, offset: number, length: number, position: number): Promise<{ bytesRead: number }>;
  /** Fills several targets in one call, where the host can. */
  readv?(targets: readonly Uint8Array[], position: number): Promise<{ bytesRead: number }>;
  close(): Promise<void>;
}

/** Fills `target` from a place in the file; the number of bytes that were there. */
export async function readAt(
  handle: ReadableFile,
  target: Uint8Array,
  position: number,
  signal: AbortSignal | undefined,
): Promise<number> {
  let done = 0;
  while (done < target.length) {
    signal?.throwIfAborted();
    const length = Math.min(pieceBytes, target.length - done);
    const { bytesRead } = await handle.read(target, done, length, position + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return done;
}

/** Fills targets one after the other from a place in the file; the number of bytes that were there. */
export async function readInto(
  handle: ReadableFile,
  targets: readonly Uint8Array[],
  position: number,
  signal: AbortSignal | undefined,
): Promise<number> {
  signal?.throwIfAborted();
  // One call for all of them takes one way through the system, and reads what it can.
  let done = handle.readv === undefined ? 0 : (await handle.readv(targets, position)).bytesRead;
  let begin = 0;
  for (const target of targets) {
    const end = begin + target.length;
    if (done < end) done += await readAt(handle, target.subarray(done - begin), position + done, signal);
    if (done < end) break;
    begin = end;
  }
  return done;
}

/** Writes all bytes where the file stands. */
export async function writeAll(
  handle: Files.FileHandle,
  bytes: Uint8Array,
  signal: AbortSignal | undefined,
): Promise<void> {
  let done = 0;
  while (done < bytes.length) {
    signal?.throwIfAborted();
    const { bytesWritten } = await handle.write(bytes, done, Math.min(pieceBytes, bytes.length - done));
    done += bytesWritten;
  }
}
