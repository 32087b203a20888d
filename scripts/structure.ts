/** `npm run check -- structure`: the rules of the house that a program can judge, over every file of the repository. */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { root } from "./rooms.ts";
import { examplesImportThePackage, importCycles, importDirection, importForm } from "./structure/imports.ts";
import { type Problem, parse, type Rule, type Source } from "./structure/source.ts";
import {
  errorsHaveCodes,
  exportsDocumented,
  fileSize,
  forbiddenSyntax,
  functionSize,
  kernelsKeepNoState,
  nothingAtImport,
} from "./structure/syntax.ts";
import { fileName, forbiddenWords, mechanismsUnnamed } from "./structure/words.ts";

const codeRules: readonly Rule[] = [
  importDirection,
  importForm,
  examplesImportThePackage,
  fileSize,
  functionSize,
  forbiddenSyntax,
  exportsDocumented,
  nothingAtImport,
  errorsHaveCodes,
  kernelsKeepNoState,
  mechanismsUnnamed,
];
const everyFile: readonly Rule[] = [fileName, forbiddenWords];

/** Text files under version control or about to be, without generated ones and golden data. */
export function repositorySources(): Source[] {
  const listed = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "-z"], {
    cwd: root,
    encoding: "utf8",
  });
  return listed
    .split("\0")
    .filter(
      (path) => /\.(ts|md)$/.test(path) && !path.startsWith("tests/golden/") && existsSync(join(root, path)),
    )
    .map((path) => ({ path, text: readFileSync(join(root, path), "utf8") }));
}

/** Every broken rule, in the order of the files. */
export function structureProblems(sources: readonly Source[]): Problem[] {
  const paths = new Set(sources.map((source) => source.path));
  const code = sources.filter((source) => source.path.endsWith(".ts"));
  const trees = new Map(code.map((source) => [source.path, parse(source)]));
  const problems: Problem[] = [];
  for (const source of sources) {
    const tree = trees.get(source.path);
    const rules = tree === undefined ? everyFile : [...everyFile, ...codeRules];
    for (const rule of rules) problems.push(...rule(source, tree ?? parse({ ...source, text: "" }), paths));
  }
  return [...problems, ...importCycles(trees)];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const sources = repositorySources();
  const problems = structureProblems(sources);
  for (const { path, line, message } of problems) console.log(`${path}:${line} ${message}`);
  console.log(`${sources.length} files, ${problems.length} broken rules`);
  process.exitCode = problems.length > 0 ? 1 : 0;
}
