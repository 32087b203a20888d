/** `npm run size`: lines of source, tests and kernels per room, and what each entry of `dist/` weighs for a browser. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { entries, roomOf, root } from "./rooms.ts";
import { repositorySources } from "./structure.ts";

type Column = "source" | "kernels" | "tests" | "largest";
type Row = Record<Column, number>;

function columnOf(path: string): Column {
  if (path.endsWith(".test.ts") || path.startsWith("tests/")) return "tests";
  return path.endsWith(".as.ts") || path.endsWith(".gen.ts") ? "kernels" : "source";
}

function linesPerFolder(): Map<string, Row> {
  const rows = new Map<string, Row>();
  for (const { path, text } of repositorySources()) {
    if (!path.endsWith(".ts")) continue;
    const folder = path.startsWith("src/") ? `src/${roomOf(path)}` : path.split("/")[0]!;
    const row = rows.get(folder) ?? { source: 0, kernels: 0, tests: 0, largest: 0 };
    const lines = text.split("\n").length - 1;
    row[columnOf(path)] += lines;
    row.largest = Math.max(row.largest, lines);
    rows.set(folder, row);
  }
  return rows;
}

/** Bytes of one entry as a page would ship it: bundled, minified, then gzipped. */
async function weigh(file: string): Promise<{ bytes: number; gzipped: number }> {
  const result = await build({
    entryPoints: [file],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    platform: "browser",
    target: "es2022",
    external: ["node:*"],
    logLevel: "error",
  });
  const { contents } = result.outputFiles[0]!;
  return { bytes: contents.length, gzipped: gzipSync(contents, { level: 9 }).length };
}

const kilobytes = (bytes: number): string => `${(bytes / 1024).toFixed(1)} kB`.padStart(10);
const columns: readonly Column[] = ["source", "kernels", "tests", "largest"];
console.log(`${"lines".padEnd(20)}${columns.map((name) => name.padStart(9)).join("")}`);
let total = 0;
for (const [folder, row] of [...linesPerFolder()].sort(([a], [b]) => (a < b ? -1 : 1))) {
  total += row.source + row.kernels + row.tests;
  console.log(`${folder.padEnd(20)}${columns.map((name) => String(row[name]).padStart(9)).join("")}`);
}
console.log(`${"bundled".padEnd(20)}${"minified".padStart(10)}${"gzip".padStart(10)}`);
let summary = `${total} lines, nothing built: npm run build`;
for (const { subpath, output } of entries()) {
  const file = join(root, "dist", `${output}.js`);
  if (!existsSync(file)) continue;
  const { bytes, gzipped } = await weigh(file);
  console.log(`${subpath.padEnd(20)}${kilobytes(bytes)}${kilobytes(gzipped)}`);
  const packed = kilobytes(gzipped).trim();
  if (subpath === ".") summary = `${total} lines, the whole library ${packed} gzipped`;
}
console.log(summary);
