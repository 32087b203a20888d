/**
 * The code blocks of the documentation, each as a file that is type-checked and run: every block marked `ts` in a
 * Markdown page, and every `@example` of a docstring. A block that cannot run is marked `ts no-run` and only checked.
 * An example in a docstring that imports nothing sees what the library exports and the words of tests/docs/setting.ts.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, posix } from "node:path";
import { root } from "./rooms.ts";
import { isLibrary, type Source } from "./structure/source.ts";

/** A block as it stands in the documentation. */
export interface Snippet {
  readonly path: string;
  /** Of the first line of code, counted from 1. */
  readonly line: number;
  readonly code: string;
  readonly runs: boolean;
}

const folder = "tests/generated/docs";
const setting = "tests/docs/setting.ts";
const fence = /^(\s*)```ts( no-run)?\s*$/;

function blocksOfPage(path: string, lines: readonly string[], first = 0): Snippet[] {
  const snippets: Snippet[] = [];
  for (let i = 0; i < lines.length; i++) {
    const open = fence.exec(lines[i]!);
    if (open === null) continue;
    const begin = i + 1;
    while (i + 1 < lines.length && lines[i + 1]!.trim() !== "```") i++;
    const code = lines.slice(begin, ++i).map((line) => line.slice(open[1]!.length));
    snippets.push({ path, line: first + begin + 1, code: code.join("\n"), runs: open[2] === undefined });
  }
  return snippets;
}

/** An `@example` reaches to the next tag or the end of its comment; a fence around the code is optional. */
function examplesOfSource(path: string, lines: readonly string[]): Snippet[] {
  const snippets: Snippet[] = [];
  for (let i = 0; i < lines.length; i++) {
    if (!/^\s*\* @example\s*$/.test(lines[i]!)) continue;
    const begin = i + 1;
    while (i + 1 < lines.length && !/^\s*\*(\/| @)/.test(lines[i + 1]!)) i++;
    const text = lines.slice(begin, i + 1).map((line) => line.replace(/^\s*\* ?/, ""));
    const fenced = blocksOfPage(path, text, begin);
    const whole = { path, line: begin + 1, code: text.join("\n"), runs: true };
    snippets.push(...(fenced.length > 0 ? fenced : [whole]));
  }
  return snippets;
}

/** All blocks of these files, in their order. */
export function snippetsOf(sources: readonly Source[]): Snippet[] {
  return sources.flatMap(({ path, text }) => {
    const lines = text.split("\n");
    if (path.endsWith(".md")) return blocksOfPage(path, lines);
    return isLibrary(path) ? examplesOfSource(path, lines) : [];
  });
}

const exportLine = /^export (?:async )?(?:function\*?|class|const) (\[[\w, ]+\]|\w+)/gm;

function exportedNames(text: string): string[] {
  return [...text.matchAll(exportLine)].flatMap(([, names]) => names!.match(/\w+/g)!);
}

/** Which file exports a name; the first does where two share one. */
function exportsOf(sources: readonly Source[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const { path, text } of sources.filter((source) => isLibrary(source.path))) {
    for (const name of exportedNames(text)) if (!found.has(name)) found.set(name, path);
  }
  return found;
}

/** The imports that a docstring's example leaves out: its own file's names first, then the setting's, then any. */
function prelude(snippet: Snippet, library: ReadonlyMap<string, string>, words: readonly string[]): string {
  if (snippet.path.endsWith(".md") || /^import /m.test(snippet.code)) return "";
  const own = exportedNames(readFileSync(join(root, snippet.path), "utf8"));
  const declared = [...snippet.code.matchAll(/\b(?:const|let|function|class) ([{[][^}\]]*[}\]]|\w+)/g)];
  const known = new Set(declared.flatMap(([, names]) => names!.match(/\w+/g)!));
  const code = snippet.code.replaceAll(/\.\w+/g, "").replaceAll(/"[^"]*"|\/\/.*/g, "");
  const lines: string[] = [];
  for (const name of new Set(code.match(/[A-Za-z_]\w*/g))) {
    const file = own.includes(name) ? snippet.path : words.includes(name) ? setting : library.get(name);
    if (file !== undefined && !known.has(name)) lines.push(`import { ${name} } from "../../../${file}";`);
  }
  return lines.length === 0 ? "" : `${lines.join("\n")}\n`;
}

/** Writes each block into a module of its own and says where. */
export function writeSnippets(sources: readonly Source[]): Map<Snippet, string> {
  rmSync(join(root, folder), { recursive: true, force: true });
  mkdirSync(join(root, folder), { recursive: true });
  const library = exportsOf(sources);
  const words = exportedNames(readFileSync(join(root, setting), "utf8"));
  const files = new Map<Snippet, string>();
  for (const snippet of snippetsOf(sources)) {
    const name = `${snippet.path.replaceAll(/[^a-zA-Z0-9]+/g, "-")}-${snippet.line}.ts`;
    writeFileSync(
      join(root, folder, name),
      `${prelude(snippet, library, words)}${snippet.code}\nexport {};\n`,
    );
    files.set(snippet, join(root, folder, name));
  }
  return files;
}

/** The name that a heading is linked by. */
function anchorOf(heading: string): string {
  const text = heading.replace(/^#+\s*/, "").toLowerCase();
  return text.replaceAll(/[^\p{L}\p{N}\s_-]/gu, "").replaceAll(/\s/g, "-");
}

function anchorsOf(text: string): Set<string> {
  return new Set(
    text
      .split("\n")
      .filter((line) => /^#+ /.test(line))
      .map(anchorOf),
  );
}

/** Links of the pages to files or headings that are not there. */
export function brokenLinks(sources: readonly Source[], exists: (path: string) => boolean): string[] {
  const pages = new Map(
    sources.filter(({ path }) => path.endsWith(".md")).map(({ path, text }) => [path, text]),
  );
  const broken: string[] = [];
  for (const [path, text] of pages) {
    const prose = text.replaceAll(/```[\s\S]*?```/g, "");
    for (const [, target] of prose.matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^[a-z]+:/.test(target!)) continue;
      const [file, anchor] = target!.split("#") as [string, string | undefined];
      const other = file === "" ? path : posix.normalize(posix.join(posix.dirname(path), file));
      const page = pages.get(other);
      const isThere = page !== undefined || exists(other);
      const isHeading = anchor === undefined || page === undefined || anchorsOf(page).has(anchor);
      if (!isThere || !isHeading) broken.push(`${path}: ${target}`);
    }
  }
  return broken;
}
