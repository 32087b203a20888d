import { FormatError } from "../errors.ts";
import type { CheckpointSource, OpenedFile } from "./checkpoint-source.ts";
import { cachedFile } from "./http-cache.ts";
import type { ReadableFile } from "./node-files.ts";

/** How files are fetched. */
export interface HttpOptions {
  /** Folder that keeps what was downloaded, for the next time; nothing is kept unless given. Node only. */
  readonly cache?: string | undefined;
  /** Sent with every request, such as `authorization`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** What fetches; the global one unless given. */
  readonly fetch?: typeof globalThis.fetch | undefined;
}

/** What a server says of a file. */
export interface RemoteFile {
  readonly url: string;
  readonly size: number;
  /** Changes when the file does; empty where the server has none. */
  readonly etag: string;
  /** Whether pieces can be asked for. */
  readonly ranges: boolean;
}

/** Asks for bytes of a file: from `begin` up to before `end`, or the whole. */
export type Request = (url: string, range?: readonly [begin: number, end: number]) => Promise<Response>;

const blockBytes = 2 ** 23;
const tries = 3;

/** True for what is fetched rather than read from disk. */
export function isAddress(path: string): boolean {
  return /^https?:\/\//i.test(path);
}

/** The files below an address, such as `https://huggingface.co/fla-hub/gla-340M-15B/resolve/main`. */
export function httpSource(base: string, options: HttpOptions = {}): CheckpointSource {
  const root = base.replace(/\/+$/, "");
  return { name: root, open: (file, signal) => openAddress(`${root}/${file}`, options, signal) };
}

/**
 * Opens a file at an address; undefined where the server has none.
 *
 * @throws FormatError for an answer that is neither the file nor its absence, after three tries of what may pass.
 */
export async function openAddress(
  url: string,
  options: HttpOptions = {},
  signal?: AbortSignal,
): Promise<OpenedFile | undefined> {
  const request = requestOf(options, signal);
  if (options.cache !== undefined) return cachedFile(options.cache, url, () => probe(url, request), request);
  const remote = await probe(url, request);
  if (remote === undefined) return undefined;
  return { name: url, size: remote.size, handle: handleOf(remote, request) };
}

function requestOf(options: HttpOptions, signal: AbortSignal | undefined): Request {
  const run = options.fetch ?? globalThis.fetch;
  return async (url, range) => {
    const headers = {
      ...options.headers,
      // Ranges count bytes of the file itself.
      "accept-encoding": "identity",
      ...(range === undefined ? {} : { range: `bytes=${range[0]}-${range[1] - 1}` }),
    };
    for (let attempt = 1; ; attempt++) {
      try {
        const response = await run(url, { headers, ...(signal === undefined ? {} : { signal }) });
        if (response.status < 500 || attempt === tries) return response;
        await response.body?.cancel();
      } catch (error) {
        if (signal?.aborted || attempt === tries) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 200 * attempt));
    }
  };
}

async function probe(url: string, request: Request): Promise<RemoteFile | undefined> {
  const response = await request(url, [0, 1]);
  const etag = response.headers.get("etag") ?? response.headers.get("last-modified") ?? "";
  const total = /\/(\d+)$/.exec(response.headers.get("content-range") ?? "")?.[1];
  const length = response.headers.get("content-length");
  await response.body?.cancel();
  if (response.status === 404) return undefined;
  if (response.status === 206 && total !== undefined) return { url, size: Number(total), etag, ranges: true };
  if (response.status === 416) return { url, size: 0, etag, ranges: true };
  if (response.status === 200 && length !== null) return { url, size: Number(length), etag, ranges: false };
  throw new FormatError(
    `[load] ${url} cannot be fetched: expected status 200 or 206 with a length, got ${response.status} ${response.statusText}`,
    response.status === 401 || response.status === 403
      ? "Pass headers: { authorization: … } for a model that asks for a token."
      : undefined,
  );
}

/** Reads by blocks: neighbouring pieces of a few megabytes are one request. */
function handleOf(remote: RemoteFile, request: Request): ReadableFile {
  const { url, size, ranges } = remote;
  if (!ranges && size > blockBytes) {
    throw new FormatError(
      `[load] ${url} is sent whole only: expected a server that answers to Range, got status 200`,
      "Pass a cache folder: the file is downloaded there and read from disk.",
    );
  }
  const blocks = new Map<number, Promise<Uint8Array>>();
  const block = (index: number): Promise<Uint8Array> => {
    const known = blocks.get(index);
    if (known !== undefined) return known;
    const begin = index * blockBytes;
    const fetched = fetchBytes(request, remote, begin, Math.min(size, begin + blockBytes));
    for (const old of [...blocks.keys()].slice(0, -1)) blocks.delete(old);
    blocks.set(index, fetched);
    fetched.catch(() => blocks.delete(index));
    return fetched;
  };
  return {
    read: async (target, offset, length, position) => {
      if (position >= size || length === 0) return { bytesRead: 0 };
      const index = Math.floor(position / blockBytes);
      const bytes = await block(index);
      const from = position - index * blockBytes;
      const piece = bytes.subarray(from, from + length);
      target.set(piece, offset);
      return { bytesRead: piece.length };
    },
    close: async () => blocks.clear(),
  };
}

async function fetchBytes(
  request: Request,
  { url, ranges, etag }: RemoteFile,
  begin: number,
  end: number,
): Promise<Uint8Array> {
  const response = await request(url, ranges ? [begin, end] : undefined);
  const now = response.headers.get("etag") ?? response.headers.get("last-modified") ?? "";
  if (response.status !== (ranges ? 206 : 200) || now !== etag) {
    throw new FormatError(
      `[load] ${url} changed while it was read: expected bytes ${begin} to ${end} of the same file, got status ${response.status}`,
    );
  }
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (bytes.length === end - begin) return bytes;
  throw new FormatError(
    `[load] ${url} came cut short: expected ${end - begin} bytes from ${begin} on, got ${bytes.length}`,
  );
}
