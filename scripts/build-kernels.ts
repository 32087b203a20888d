/**
 * Compiles every `kernels/*.as.ts` of the source tree into one WebAssembly module per tier and writes each as a
 * TypeScript module with the bytes in base64, so that nothing is fetched or compiled where Linnet is installed.
 */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const generated = join(root, "src/device/wasm/generated");
const kernelSignature =
  /^export function ([a-zA-Z][a-zA-Z0-9]*(?:_[a-zA-Z0-9]+)+)\(\s*args: usize,\s*begin: i32,\s*end: i32,\s*scratch: usize,?\s*\): void/gm;

/** The three builds of one source: what the compiler may emit and the TIER constant the source sees. */
const tiers = [
  { name: "a", tier: 0, features: ["simd", "threads"] },
  { name: "b", tier: 1, features: ["simd", "threads", "relaxed-simd"] },
  { name: "c", tier: 2, features: ["simd", "threads", "relaxed-simd"] },
] as const;

function kernelFiles(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((entry) => {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) return entry.name === "generated" ? [] : kernelFiles(path);
      return /\.(as|gen)\.ts$/.test(entry.name) ? [path] : [];
    });
}

/** Writes only what changed, under a temporary name first: a reader never sees half a file. */
function write(path: string, text: string | Uint8Array): void {
  if (typeof text === "string" && existsSync(path) && readFileSync(path, "utf8") === text) return;
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(`${path}.${process.pid}.tmp`, text);
  renameSync(`${path}.${process.pid}.tmp`, path);
}

/** `kernels/NAME.gen.ts` exports `generate()`; its text becomes `kernels/generated/NAME.as.ts`. */
async function runGenerators(files: string[]): Promise<string[]> {
  const outputs: string[] = [];
  for (const file of files.filter((path) => path.endsWith(".gen.ts"))) {
    const { generate } = (await import(pathToFileURL(file).href)) as { generate(): string };
    const name = file.slice(dirname(file).length + 1, -".gen.ts".length);
    const output = join(dirname(file), "generated", `${name}.as.ts`);
    write(output, generate());
    outputs.push(output);
  }
  return outputs;
}

/** The entry of a module: every kernel by name, the thread runtime, and where the heap may begin. */
function entry(sources: string[]): { text: string; kernels: string[] } {
  const kernels: string[] = [];
  const lines: string[] = [];
  for (const file of sources) {
    const names = [...readFileSync(file, "utf8").matchAll(kernelSignature)].map((match) => match[1]!);
    if (names.length === 0) continue;
    kernels.push(...names);
    const path = relative(generated, file).replaceAll("\\", "/").replace(/\.ts$/, "");
    lines.push(`export { ${names.join(", ")} } from "${path}";`);
  }
  const twice = kernels.filter((name, i) => kernels.indexOf(name) !== i);
  if (twice.length > 0) throw new Error(`kernel names must be unique, these are not: ${twice.join(", ")}`);
  lines.push(`export * from "../kernels/runtime.as";`, `export const heapBase: usize = __heap_base;`);
  return { text: `${lines.join("\n")}\n`, kernels };
}

/** The binary of a tier, from an earlier build of the same sources on this machine where there was one. */
async function binaryOf(tier: (typeof tiers)[number], stamp: string): Promise<Uint8Array> {
  const kept = join(tmpdir(), "linnet-kernels", `${stamp}-${tier.name}.wasm`);
  if (existsSync(kept)) {
    const binary = readFileSync(kept);
    if (WebAssembly.validate(binary) || tier.tier > 0) return binary;
  }
  const binary = await compile(tier);
  write(kept, binary);
  return binary;
}

async function compile(tier: (typeof tiers)[number]): Promise<Uint8Array> {
  const output = join(generated, `tier-${tier.name}.${process.pid}.wasm`);
  const flags = [
    "--runtime",
    "stub",
    "--importMemory",
    "--sharedMemory",
    "--exportTable",
    "--noAssert",
    "-O2",
  ];
  const memory = ["--initialMemory", "16", "--maximumMemory", "65536", "--memoryBase", "4096"];
  const features = tier.features.flatMap((feature) => ["--enable", feature]);
  await promisify(execFile)(
    process.execPath,
    [
      join(root, "node_modules/assemblyscript/bin/asc.js"),
      relative(root, join(generated, "entry.as.ts")),
      ...["--outFile", relative(root, output), "--use", `TIER=${tier.tier}`],
      ...[...flags, ...memory, ...features],
    ],
    { cwd: root },
  );
  const binary = readFileSync(output);
  rmSync(output);
  return binary;
}

function moduleText(binary: Uint8Array): string {
  const base64 = Buffer.from(binary).toString("base64");
  return `/** One tier of the kernels as base64. */\nexport const base64 =\n  "${base64}";\n`;
}

/** Builds what is out of date; says one line when it did. */
export async function buildKernels(log: (line: string) => void): Promise<void> {
  const found = kernelFiles(join(root, "src"));
  const hash = createHash("sha256").update(readFileSync(fileURLToPath(import.meta.url)));
  for (const file of found) hash.update(file.slice(root.length)).update(readFileSync(file));
  const stamp = hash.digest("hex");
  const stampPath = join(generated, "stamp.txt");
  if (existsSync(stampPath) && readFileSync(stampPath, "utf8") === stamp) return;
  const outputs = await runGenerators(found);
  const { text, kernels } = entry([...found.filter((file) => file.endsWith(".as.ts")), ...outputs].sort());
  write(join(generated, "entry.as.ts"), text);
  const binaries = await Promise.all(tiers.map((tier) => binaryOf(tier, stamp)));
  for (const [i, tier] of tiers.entries())
    write(join(generated, `tier-${tier.name}.ts`), moduleText(binaries[i]!));
  const names = JSON.stringify(kernels, null, 2);
  write(
    join(generated, "kernels.ts"),
    `/** Names of the kernels in every tier, in table order. */\nexport const kernelNames: readonly string[] = ${names};\n`,
  );
  write(stampPath, stamp);
  const sizes = tiers.map((tier, i) => `${tier.name} ${(binaries[i]!.length / 1024).toFixed(1)} kB`);
  log(`${kernels.length} kernels: ${sizes.join(", ")}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildKernels((line) => console.log(line));
