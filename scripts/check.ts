/**
 * `npm run check`: everything that must hold before a change lands, one line per step with its seconds.
 * Step names as arguments run only those; `--except` before them runs the others.
 */
import { type SpawnSyncReturns, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeSnippets } from "./docs.ts";
import { root } from "./rooms.ts";
import { repositorySources } from "./structure.ts";

/** What a step found: the words for its line, or all it has to say when it failed. */
interface Outcome {
  readonly ok: boolean;
  readonly output: string;
}

interface Step {
  readonly name: string;
  run(): Outcome;
}

const node = process.execPath;
const script = (name: string, ...rest: string[]): string[] => [
  "--import",
  "tsx",
  `scripts/${name}.ts`,
  ...rest,
];
const binary = (path: string, ...rest: string[]): string[] => [join("node_modules", path), ...rest];

/** Runs Node on each list of arguments in turn, up to the first that fails. */
function inTurn(...calls: readonly string[][]): Outcome {
  let output = "";
  for (const call of calls) {
    const done: SpawnSyncReturns<string> = spawnSync(node, call, {
      cwd: root,
      encoding: "utf8",
      maxBuffer: 1 << 28,
      stdio: ["ignore", "pipe", "pipe"],
    });
    output += `${done.stdout}${done.stderr}`;
    if (done.status !== 0) return { ok: false, output };
  }
  return { ok: true, output };
}

function lastLine(outcome: Outcome): Outcome {
  if (!outcome.ok) return outcome;
  const lines = outcome.output.trimEnd().split("\n");
  return { ok: true, output: lines[lines.length - 1]!.trim() };
}

function checkTests(): Outcome {
  const outcome = inTurn(script("test"));
  const counts = [...outcome.output.matchAll(/^ℹ (pass|fail|skipped) (\d+)$/gm)];
  return outcome.ok ? { ok: true, output: counts.map(([, word, n]) => `${n} ${word}`).join(", ") } : outcome;
}

function checkDocs(): Outcome {
  const { size } = writeSnippets(repositorySources());
  if (size === 0) return { ok: true, output: "no blocks" };
  const outcome = inTurn(binary("typescript/bin/tsc", "-p", "tsconfig.docs.json"));
  return outcome.ok ? { ok: true, output: `${size} blocks` } : outcome;
}

/** Builds, packs as npm would, and lets two outside tools judge the package as its users see it. */
function checkPackage(): Outcome {
  const built = inTurn(script("build"));
  if (!built.ok) return built;
  const folder = mkdtempSync(join(tmpdir(), "linnet-pack-"));
  try {
    const npm = process.platform === "win32" ? "npm.cmd" : "npm";
    const packing = ["pack", "--ignore-scripts", "--silent", "--pack-destination", folder];
    const packed = spawnSync(npm, packing, {
      cwd: root,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
    const name = readdirSync(folder).find((file) => file.endsWith(".tgz"));
    if (packed.status !== 0 || name === undefined)
      return { ok: false, output: packed.stdout + packed.stderr };
    const tarball = join(folder, name);
    const judged = inTurn(
      binary("publint/src/cli.js", "run", tarball, "--strict"),
      binary("@arethetypeswrong/cli/dist/index.js", tarball, "--profile", "node16", "--format", "ascii"),
    );
    return judged.ok ? { ok: true, output: `${lastLine(built).output}, publint, attw` } : judged;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

const steps: readonly Step[] = [
  { name: "kernels", run: () => lastLine(inTurn(script("build-kernels"))) },
  {
    name: "format",
    run: () => lastLine(inTurn(binary("@biomejs/biome/bin/biome", "check", "--error-on-warnings"))),
  },
  { name: "types", run: () => lastLine(inTurn(binary("typescript/bin/tsc", "-p", "."))) },
  { name: "structure", run: () => lastLine(inTurn(script("structure"))) },
  { name: "docs", run: checkDocs },
  { name: "tests", run: checkTests },
  { name: "package", run: checkPackage },
  { name: "size", run: () => lastLine(inTurn(script("size"))) },
];

function selected(words: readonly string[]): readonly Step[] {
  const except = words[0] === "--except";
  const names = except ? words.slice(1) : words;
  const unknown = names.filter((name) => !steps.some((step) => step.name === name));
  if (unknown.length > 0) {
    console.error(`no step ${unknown.join(", ")}: the steps are ${steps.map(({ name }) => name).join(", ")}`);
    process.exit(1);
  }
  return names.length === 0 ? steps : steps.filter(({ name }) => names.includes(name) !== except);
}

const failed: string[] = [];
const chosen = selected(process.argv.slice(2));
if (!existsSync(join(root, "node_modules"))) console.error("run npm ci first");
for (const step of chosen) {
  const start = performance.now();
  const { ok, output } = step.run();
  const seconds = ((performance.now() - start) / 1000).toFixed(1).padStart(6);
  console.log(`${ok ? "✔" : "✖"} ${step.name.padEnd(10)}${seconds} s  ${ok ? output : ""}`.trimEnd());
  if (ok) continue;
  failed.push(step.name);
  console.log(output.trimEnd().replaceAll(/^/gm, "    "));
}
console.log(`${chosen.length - failed.length} passed, ${failed.length} failed`);
process.exitCode = failed.length > 0 ? 1 : 0;
