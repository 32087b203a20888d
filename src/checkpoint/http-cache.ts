import { FormatError } from "../errors.ts";
import { type OpenedFile, openOnDisk } from "./checkpoint-source.ts";
import type { RemoteFile, Request } from "./http-source.ts";
import { nodeFiles } from "./node-files.ts";

/** What is kept beside a downloaded file. */
interface Kept {
  readonly url: string;
  readonly etag: string;
  readonly size: number;
}

/**
 * A file of an address from the cache folder, downloaded where it is not there or the server has another one. A download
 * that was interrupted goes on where it stopped; without a network what is there is used.
 *
 * @param probe Asks the server what it has.
 */
export async function cachedFile(
  cache: string,
  url: string,
  probe: () => Promise<RemoteFile | undefined>,
  request: Request,
): Promise<OpenedFile | undefined> {
  const files = await nodeFiles("load");
  await files.mkdir(cache, { recursive: true });
  const path = `${cache.replace(/[\\/]+$/, "")}/${nameOf(url)}`;
  const kept = await readKept(`${path}.json`);
  const isWhole = await files.stat(path).then(
    ({ size }) => size === kept?.size,
    () => false,
  );
  let remote: RemoteFile | undefined;
  try {
    remote = await probe();
  } catch (error) {
    // Of an answer that is wrong the cache is no help; of none it is.
    if (isWhole && error instanceof TypeError) return openOnDisk(path);
    throw error;
  }
  if (remote === undefined) return undefined;
  const isSame = kept !== undefined && kept.etag === remote.etag && kept.size === remote.size;
  if (isWhole && isSame) return openOnDisk(path);
  await download(path, remote, isSame && remote.etag !== "", request);
  return openOnDisk(path);
}

async function download(path: string, remote: RemoteFile, goOn: boolean, request: Request): Promise<void> {
  const files = await nodeFiles("load");
  const { url, etag, size, ranges } = remote;
  const partial = `${path}.partial`;
  const there =
    goOn && ranges
      ? await files.stat(partial).then(
          (status) => status.size,
          () => 0,
        )
      : 0;
  await files.writeFile(`${path}.json`, JSON.stringify({ url, etag, size } satisfies Kept));
  const handle = await files.open(partial, there > 0 ? "a" : "w");
  try {
    if (there < size) {
      const response = await request(url, ranges ? [there, size] : undefined);
      if (response.status !== (ranges ? 206 : 200) || response.body === null) {
        throw new FormatError(
          `[load] ${url} cannot be fetched: expected bytes ${there} to ${size}, got status ${response.status}`,
        );
      }
      for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>)
        await handle.write(piece);
    }
    const { size: got } = await handle.stat();
    if (got !== size) {
      throw new FormatError(`[load] ${url} came cut short: expected ${size} bytes, got ${got}`);
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
  await files.rename(partial, path);
}

async function readKept(path: string): Promise<Kept | undefined> {
  const files = await nodeFiles("load");
  try {
    return JSON.parse(await files.readFile(path, "utf8")) as Kept;
  } catch {
    return undefined;
  }
}

/** A plain file name for an address: no part of it can name another folder. */
function nameOf(url: string): string {
  const { host, pathname } = new URL(url);
  return `${host}${pathname}`.replace(/[^\w.-]/g, "_");
}
