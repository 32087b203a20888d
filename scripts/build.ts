/**
 * `npm run build`: `dist/` as ES modules, CommonJS and types, one entry per public room, and the exports map that
 * names them. The command line is an ES module only.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type InlineConfig } from "tsdown";
import { buildKernels } from "./build-kernels.ts";
import { type Entry, entries, program, root } from "./rooms.ts";

type Target = Record<"types" | "default", string>;
type ExportsMap = Record<string, string | Record<"import" | "require", Target>>;

/** What package.json must export: types first under each condition. */
export function exportsMap(list: readonly Entry[]): ExportsMap {
  const map: ExportsMap = {};
  for (const { subpath, output } of list) {
    map[subpath] = {
      import: { types: `./dist/${output}.d.ts`, default: `./dist/${output}.js` },
      require: { types: `./dist/${output}.d.cts`, default: `./dist/${output}.cjs` },
    };
  }
  return { ...map, "./package.json": "./package.json" };
}

/** Brings package.json in line with the rooms that exist; true when it had to change. */
function writeExports(): boolean {
  const path = join(root, "package.json");
  const before = readFileSync(path, "utf8");
  const manifest = JSON.parse(before) as Record<string, unknown>;
  manifest["main"] = "./dist/index.cjs";
  manifest["types"] = "./dist/index.d.cts";
  manifest["exports"] = exportsMap(entries());
  if (program() !== undefined) manifest["bin"] = { linnet: "dist/cli/main.js" };
  const after = `${JSON.stringify(manifest, null, 2)}\n`;
  if (JSON.stringify(JSON.parse(before)) === JSON.stringify(manifest)) return false;
  writeFileSync(path, after);
  return true;
}

/** Builds into a folder of the repository, `dist` unless a test asks for its own. */
export async function buildPackage(outDir = "dist"): Promise<void> {
  await buildKernels(() => {});
  const list = entries();
  const library = Object.fromEntries(list.map(({ output, source }) => [output, source]));
  const main = program();
  const shared: InlineConfig = {
    config: false,
    cwd: root,
    outDir,
    platform: "neutral",
    target: "es2022",
    fixedExtension: false,
    deps: { neverBundle: [/^node:/] },
    // One file per source: a bundler that heeds sideEffects can then leave out every file a page does not use.
    unbundle: true,
    dts: true,
    clean: false,
    logLevel: "error",
    failOnWarn: true,
  };
  await build({
    ...shared,
    clean: true,
    format: "esm",
    entry: main ? { ...library, "cli/main": main } : library,
  });
  await build({ ...shared, format: "cjs", entry: library });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (writeExports()) console.log("package.json: the exports map changed with the rooms, commit it");
  const start = performance.now();
  await buildPackage();
  console.log(`${entries().length} entries in dist, ${((performance.now() - start) / 1000).toFixed(1)} s`);
}
