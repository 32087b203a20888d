/**
 * `npm run docs`: rewrites the parts of the pages that are derived from the code, each between a pair of comments
 * `<!-- NAME: ... -->` and `<!-- /NAME -->`.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { formNames } from "../src/mechanisms/mechanism.ts";
import { mechanisms } from "../src/mechanisms/registry.ts";
import { root } from "./rooms.ts";

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return "";
  const lines = [head, head.map(() => "---"), ...rows];
  return `${lines.map((cells) => `| ${cells.join(" | ")} |`).join("\n")}\n`;
}

/** The family as its members describe themselves. */
function family(): string {
  const rows = mechanisms.map(({ id, title, sources, traits, forms }) => [
    `\`${id}\``,
    title,
    sources[0]?.id ?? "",
    traits.decay,
    traits.write,
    traits.normalized ? "yes" : "no",
    traits.constantState ? "constant" : "grows",
    formNames.filter((name) => typeof forms[name] === "function").join(", "),
  ]);
  return table(["id", "mechanism", "source", "decay", "write", "normaliser", "state", "forms"], rows);
}

function titleOf(page: string): string {
  const heading = readFileSync(join(root, page), "utf8")
    .split("\n")
    .find((line) => line.startsWith("# "));
  return heading?.slice(2) ?? page;
}

/** The pages of a folder below `docs/`, by their titles. */
function pagesOf(folder: string): string {
  const path = join(root, "docs", folder);
  const names = existsSync(path) ? readdirSync(path).filter((name) => name.endsWith(".md")) : [];
  return names
    .sort()
    .map((name) => `- [${titleOf(`docs/${folder}/${name}`)}](${folder}/${name})\n`)
    .join("");
}

/** Every derived part: the page, the name of the part, and what belongs there. */
export function derivedParts(): readonly (readonly [page: string, name: string, text: string])[] {
  return [
    ["README.md", "mechanisms", family()],
    ["docs/performance.md", "lab", pagesOf("performance")],
  ];
}

/** The page with the part replaced. */
export function withPart(page: string, name: string, text: string): string {
  const part = new RegExp(`(<!-- ${name}: [^\\n]* -->\\n)[\\s\\S]*?(<!-- /${name} -->)`);
  if (!part.test(page)) throw new Error(`the page has no part called ${name}`);
  const body = text === "" ? "" : `\n${text}\n`;
  return page.replace(part, (_, open: string, close: string) => `${open}${body}${close}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const [page, name, text] of derivedParts()) {
    const path = join(root, page);
    const before = readFileSync(path, "utf8");
    const after = withPart(before, name, text);
    if (after === before) continue;
    writeFileSync(path, after);
    console.log(`${page}: ${name} rewritten`);
  }
}
