/** Models over HTTP: in ranges, through a cache folder, interrupted, offline, and from servers that do otherwise. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rename, rm, stat, truncate } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { load } from "../../src/checkpoint/load.ts";
import { hostDevice } from "../../src/device/host/host.ts";

const models = fileURLToPath(new URL("../golden/models", import.meta.url));
const device = hostDevice({ dtype: "float32" });
let cache = "";
let server: Server;
let base = "";
/** What the server does otherwise than it should. */
const behaviour = { ranges: true, failures: 0, cutAfter: Number.POSITIVE_INFINITY, version: "1" };
const requests: { path: string; range: string | undefined }[] = [];

before(async () => {
  cache = await mkdtemp(join(tmpdir(), "linnet-http-"));
  server = createServer(async (request, response) => {
    const path = request.url!;
    requests.push({ path, range: request.headers.range });
    if (behaviour.failures > 0) {
      behaviour.failures--;
      response.writeHead(503).end();
      return;
    }
    const bytes = await readFile(models + path).catch(() => undefined);
    if (bytes === undefined) return void response.writeHead(404).end();
    const [, from, to] = /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? "") ?? [];
    const headers = { etag: `"${behaviour.version} ${bytes.length}"` };
    const isRange = behaviour.ranges && from !== undefined;
    const piece = isRange ? bytes.subarray(Number(from), Number(to) + 1) : bytes;
    if (isRange) Object.assign(headers, { "content-range": `bytes ${from}-${to}/${bytes.length}` });
    response.writeHead(isRange ? 206 : 200, { ...headers, "content-length": piece.length });
    if (piece.length <= behaviour.cutAfter) return void response.end(piece);
    response.write(piece.subarray(0, behaviour.cutAfter), () => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
after(async () => {
  server.close();
  server.closeAllConnections();
  await rm(cache, { recursive: true });
});

async function bytesOf(url: string, options: { cache?: string } = {}): Promise<number> {
  const model = await load(url, { device, ...options });
  const sum = model.decoder.parameters().reduce((total, { value }) => total + value.dataSync()[0]!, 0);
  model.dispose();
  return sum;
}

test("a model is read in ranges, and is the one on disk", async () => {
  assert.equal(await bytesOf(`${base}/fla-gla`), await bytesOf(join(models, "fla-gla")));
  const weights = requests.filter(({ path }) => path.endsWith("model.safetensors"));
  assert.ok(weights.length > 0 && weights.every(({ range }) => range !== undefined));
});

test("a server that fails now and then is asked again", async () => {
  behaviour.failures = 2;
  await bytesOf(`${base}/fla-gla`);
  assert.equal(behaviour.failures, 0);
});

test("a cache folder is filled once, and serves without a network", async () => {
  const folder = join(cache, "kept");
  const sum = await bytesOf(`${base}/fla-kda`, { cache: folder });
  const names = await readdir(folder);
  assert.ok(
    names.some((name) => name.endsWith("fla-kda_model.safetensors")),
    names.join(),
  );
  assert.ok(names.every((name) => !name.endsWith(".partial")));
  requests.length = 0;
  assert.equal(await bytesOf(`${base}/fla-kda`, { cache: folder }), sum);
  assert.ok(
    requests.every(({ range }) => range === "bytes=0-0" || range === undefined),
    "only asked what there is",
  );
  const offline = (): Promise<Response> => Promise.reject(new TypeError("fetch failed"));
  const list = ["config.json", "model.safetensors"].map((name) => `${base}/fla-kda/${name}`);
  const model = await load(list, { device, cache: folder, fetch: offline as typeof fetch });
  model.dispose();
});

test("a download that broke off goes on where it stopped", async () => {
  const folder = join(cache, "broken");
  const url = `${base}/fla-retnet`;
  behaviour.cutAfter = 100_000;
  await assert.rejects(bytesOf(url, { cache: folder }));
  behaviour.cutAfter = Number.POSITIVE_INFINITY;
  const partial = (await readdir(folder)).find((name) => name.endsWith(".partial"))!;
  const { size } = await stat(join(folder, partial));
  assert.ok(size > 0 && size <= 100_000);
  requests.length = 0;
  assert.equal(await bytesOf(url, { cache: folder }), await bytesOf(join(models, "fla-retnet")));
  const ranges = requests.filter(({ path }) => path.endsWith("model.safetensors")).map(({ range }) => range);
  assert.ok(
    ranges.some((range) => range?.startsWith(`bytes=${size}-`)),
    ranges.join(),
  );
});

test("a file that changed on the server is downloaded anew", async () => {
  const folder = join(cache, "changed");
  await bytesOf(`${base}/fla-gla`, { cache: folder });
  const path = join(folder, (await readdir(folder)).find((name) => name.endsWith("model.safetensors"))!);
  await rename(path, `${path}.partial`);
  await truncate(`${path}.partial`, 50);
  behaviour.version = "2";
  assert.equal(await bytesOf(`${base}/fla-gla`, { cache: folder }), await bytesOf(join(models, "fla-gla")));
  behaviour.version = "1";
});

test("a server without ranges serves small files, and large ones through a cache", async () => {
  behaviour.ranges = false;
  await bytesOf(`${base}/fla-gla`);
  await bytesOf(`${base}/fla-gla`, { cache: join(cache, "whole") });
  behaviour.ranges = true;
});

test("what is not there is said like on disk", async () => {
  await assert.rejects(load(`${base}/nowhere`, { device }), {
    code: "E_FORMAT",
    message: /expected config.json in it/,
  });
  assert.equal(device.info().bytes.persistent, 0);
});
