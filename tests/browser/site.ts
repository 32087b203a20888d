import { existsSync } from "node:fs";
import type { Server } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { workerSource } from "../../src/device/wasm/worker.ts";

/** The Chromium to test in: LINNET_CHROMIUM, or one of the usual places; undefined where there is none. */
export function findChromium(): string | undefined {
  const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const { LINNET_CHROMIUM } = process.env;
  return [...(LINNET_CHROMIUM === undefined ? [] : [LINNET_CHROMIUM]), ...places].find((path) =>
    existsSync(path),
  );
}

const isolation = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
};

/** Kinds of pages by their path: what their headers allow. */
const headers: Record<string, Record<string, string>> = {
  "/isolated/": isolation,
  "/plain/": {},
  "/strict/": { ...isolation, "Content-Security-Policy": "worker-src 'self'" },
};

const html = '<!doctype html><title>Linnet</title><script type="module" src="program.js"></script>';

/** Serves the program's bundle in pages of every kind. */
export async function serve(): Promise<{ server: Server; origin: string }> {
  const bundle = await build({
    entryPoints: [fileURLToPath(new URL("./program.ts", import.meta.url))],
    ...{ bundle: true, write: false, format: "esm", platform: "browser", target: "es2022" },
  });
  const files: Record<string, [type: string, text: string]> = {
    "": ["text/html", html],
    "program.js": ["text/javascript", bundle.outputFiles[0]!.text],
    "thread.js": ["text/javascript", workerSource],
  };
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url!, "http://localhost");
    const folder = pathname.slice(0, pathname.lastIndexOf("/") + 1);
    const file = files[pathname.slice(folder.length)];
    if (headers[folder] === undefined || file === undefined) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "Content-Type": file[0], ...headers[folder] }).end(file[1]);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}
