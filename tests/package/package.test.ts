import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { build, type Metafile } from "esbuild";
import { buildPackage, exportsMap } from "../../scripts/build.ts";
import { entries, root } from "../../scripts/rooms.ts";

const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as Record<string, unknown>;
const names = entries().map(({ subpath }) => `linnet${subpath.slice(1)}`);
/** Entries that are for Node alone; all others must load in a browser. */
const nodeOnly = ["linnet/serve"];
/** Dependencies that `dist/cli` has and no entry. */
const ofTheProgram = ["commander", "fast-png", "picocolors"];
const builtInTime = { timeout: 300_000 };

/** The package as npm would install it, built when the first case asks for it. */
let installing: Promise<string> | undefined;

async function install(): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "linnet-package-"));
  const target = join(folder, "node_modules/linnet");
  mkdirSync(target, { recursive: true });
  writeFileSync(
    join(target, "package.json"),
    JSON.stringify({ ...manifest, exports: exportsMap(entries()) }),
  );
  await buildPackage(join(target, "dist"));
  return folder;
}

function installed(): Promise<string> {
  installing ??= install();
  return installing;
}

after(async () => {
  if (installing) rmSync(await installing, { recursive: true, force: true });
});

/** Runs a program beside the installed package in a Node without any loader, and reads the JSON it prints. */
async function runInstalled(name: string, program: string): Promise<unknown> {
  const folder = await installed();
  const file = join(folder, name);
  writeFileSync(file, program);
  const { stdout } = await promisify(execFile)(process.execPath, [file], { cwd: folder, timeout: 60_000 });
  return JSON.parse(stdout);
}

/** A program that imports everything, having first put a guard on what an import must not do. */
function importing(load: (name: string) => string, builtin: (name: string) => string): string {
  return `
    const started = [];
    const guard = (owner, name) => {
      const real = owner[name];
      owner[name] = new Proxy(real, {
        apply: (target, self, values) => (started.push(name), Reflect.apply(target, self, values)),
        construct: (target, values) => (started.push(name), Reflect.construct(target, values)),
      });
    };
    for (const name of ["setTimeout", "setInterval", "setImmediate", "queueMicrotask", "fetch"]) guard(globalThis, name);
    for (const name of ["Memory", "Module", "Instance", "compile", "instantiate"]) guard(WebAssembly, name);
    guard(${builtin("node:worker_threads")}, "Worker");
    guard(${builtin("node:v8")}, "setFlagsFromString");
    const globals = Object.getOwnPropertyNames(globalThis).length;
    const environment = JSON.stringify(process.env);
    const modules = { ${names.map((name) => `${JSON.stringify(name)}: ${load(name)}`).join(", ")} };
    console.log(JSON.stringify({
      started,
      exported: Object.fromEntries(Object.entries(modules).map(([name, all]) => [name, Object.keys(all).sort()])),
      globals: Object.getOwnPropertyNames(globalThis).length - globals,
      environmentKept: environment === JSON.stringify(process.env),
      resources: process.getActiveResourcesInfo().filter((name) => !/Pipe|TTY|FS|Close/.test(name)),
    }));`;
}

interface Imported {
  readonly exported: Record<string, string[]>;
}

const inert = { started: [], globals: 0, environmentKept: true, resources: [] };

test("every entry imports in both module systems and starts nothing", builtInTime, async () => {
  const load = (name: string) => `await import("${name}")`;
  const builtin = (name: string) => `(await import("${name}")).default`;
  const asModules = (await runInstalled("all.mjs", importing(load, builtin))) as Imported;
  const require = (name: string) => `require("${name}")`;
  const asCommonJs = (await runInstalled("all.cjs", importing(require, require))) as Imported;
  assert.deepEqual({ ...asModules, exported: undefined }, { ...inert, exported: undefined });
  assert.deepEqual({ ...asCommonJs, exported: undefined }, { ...inert, exported: undefined });
  assert.deepEqual(asCommonJs.exported, asModules.exported, "both systems export the same names");
  for (const [name, keys] of Object.entries(asModules.exported))
    assert.ok(keys.length > 0, `${name} is empty`);
});

test("the guard on imports sees what is started", async () => {
  const faulty = `((globalThis.leak = 1), setTimeout(() => {}, 1), new WebAssembly.Memory({ initial: 1 }), {})`;
  const builtin = (name: string) => `(await import("${name}")).default`;
  const seen = await runInstalled(
    "faulty.mjs",
    importing(() => faulty, builtin),
  );
  const { started, globals, resources } = seen as typeof inert;
  assert.deepEqual(new Set(started), new Set(["setTimeout", "Memory"]));
  assert.equal(globals, 1);
  assert.notDeepEqual(resources, []);
});

/** Bundles a program for a page and says which of Node's modules it would need there, and its size. */
async function bundle(program: string): Promise<{ builtins: string[]; bytes: number }> {
  const result = await build({
    stdin: { contents: program, resolveDir: await installed(), loader: "js" },
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: "esm",
    platform: "browser",
    target: "es2022",
    external: ["node:*"],
    logLevel: "silent",
  });
  const inputs: Metafile["inputs"] = result.metafile.inputs;
  const imports = Object.values(inputs).flatMap((input) => input.imports);
  const builtins = imports.filter(
    ({ path, kind }) => path.startsWith("node:") && kind === "import-statement",
  );
  return { builtins: builtins.map(({ path }) => path), bytes: result.outputFiles[0]!.contents.length };
}

test("every entry for browsers bundles without a static import of Node's modules", builtInTime, async () => {
  for (const name of names.filter((name) => !nodeOnly.includes(name))) {
    assert.deepEqual((await bundle(`export * from "${name}";`)).builtins, [], name);
  }
});

test("what a page does not use is not in its bundle", builtInTime, async () => {
  const { bytes } = await bundle(`import { isLinnetError } from "linnet"; console.log(isLinnetError(1));`);
  assert.ok(bytes < 4096, `one small function brings ${bytes} bytes`);
});

test("package.json exports what the rooms offer", () => {
  assert.deepEqual(manifest["exports"], exportsMap(entries()), "run npm run build and commit package.json");
});

test("package.json asks nothing of an install", () => {
  const scripts = Object.keys(manifest["scripts"] as object);
  const atInstall = scripts.filter((name) => /^(pre|post)?install$|^prepare$|^(pre|post)prepare$/.test(name));
  assert.deepEqual(atInstall, []);
  assert.equal(manifest["sideEffects"], false);
});

test("only the command line depends on other packages", () => {
  const dependencies = Object.keys((manifest["dependencies"] ?? {}) as object);
  assert.deepEqual(
    dependencies.filter((name) => !ofTheProgram.includes(name)),
    [],
  );
  // That no entry imports one of them is shown by the bundles above: nothing but the package lies beside them.
});

test("the program of the built package says its version and its commands", builtInTime, async () => {
  const folder = await installed();
  for (const name of ofTheProgram) {
    symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name), "junction");
  }
  const path = join(folder, "node_modules/linnet", (manifest["bin"] as { linnet: string }).linnet);
  const say = async (...words: string[]) =>
    (await promisify(execFile)(process.execPath, [path, ...words])).stdout;
  assert.equal((await say("--version")).trim(), manifest["version"]);
  assert.match(await say("--help"), /Usage: linnet/);
  for (const name of ofTheProgram) rmSync(join(folder, "node_modules", name), { recursive: true });
});

test("dependencies are pinned", () => {
  const kinds = ["dependencies", "optionalDependencies", "devDependencies"];
  const versions = Object.assign({}, ...kinds.map((kind) => manifest[kind])) as Record<string, string>;
  for (const [name, version] of Object.entries(versions)) {
    assert.match(version, /^\d+\.\d+\.\d+$/, name);
  }
});
