/**
 * The code blocks of the documentation, each as a file that is type-checked and run: every block marked `ts` in a
 * Markdown page, and every `@example` of a docstring. A block that cannot run is marked `ts no-run` and only checked.
 */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, posix } from "node:path";
import { root } from "./rooms.ts";
import type { Source } from "./structure/source.ts";

/** A block as it stands in the documentation. */
export interface Snippet {
  /** The file and line where the block begins. */
  readonly origin: string;
  readonly code: string;
  readonly runs: boolean;
}

const folder = "tests/generated/docs";
const fence = /^(\s*)```ts( no-run)?\s*$/;

function snippetsOfLines(path: string, lines: readonly string[]): Snippet[] {
  const snippets: Snippet[] = [];
  for (let i = 0; i < lines.length; i++) {
    const open = fence.exec(lines[i]!);
    if (open === null) continue;
    const begin = i + 1;
    while (i + 1 < lines.length && lines[i + 1]!.trim() !== "```") i++;
    const code = lines.slice(begin, ++i).map((line) => line.slice(open[1]!.length));
    snippets.push({ origin: `${path}:${begin}`, code: code.join("\n"), runs: open[2] === undefined });
  }
  return snippets;
}

/** All blocks of these files, in their order. */
export function snippetsOf(sources: readonly Source[]): Snippet[] {
  return sources.flatMap(({ path, text }) => {
    const lines = text.split("\n");
    if (path.endsWith(".md")) return snippetsOfLines(path, lines);
    if (!path.startsWith("src/") || path.endsWith(".as.ts")) return [];
    return snippetsOfLines(
      path,
      lines.map((line) => (/^\s*\*( |$)/.test(line) ? line.replace(/^\s*\* ?/, "") : "")),
    );
  });
}

/** Writes each block into a module of its own and says where. */
export function writeSnippets(snippets: readonly Snippet[]): Map<Snippet, string> {
  rmSync(join(root, folder), { recursive: true, force: true });
  const files = new Map<Snippet, string>();
  for (const snippet of snippets) {
    const file = join(root, folder, `${snippet.origin.replaceAll(/[^a-zA-Z0-9]+/g, "-")}.ts`);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `${snippet.code}\nexport {};\n`);
    files.set(snippet, file);
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
