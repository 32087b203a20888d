/**
 * `npm run docs`: rewrites the parts of the pages that are derived from the code, each between a pair of comments
 * `<!-- NAME: ... -->` and `<!-- /NAME -->`.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { featureMaps } from "../src/mechanisms/feature-maps/index.ts";
import { formNames, type Mechanism } from "../src/mechanisms/mechanism.ts";
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

/** Inputs or state parts with their axes. */
function symbols(
  entries: readonly (readonly [string, { readonly axes: string; readonly optional?: boolean }])[],
): string {
  const one = ([name, { axes, optional }]: (typeof entries)[number]): string =>
    `\`${name} [${axes.split(" ").join(",")}]\`${optional ? "?" : ""}`;
  return entries.length === 0 ? "none" : entries.map(one).join(", ");
}

/** Every member by itself: equation, sources, inputs, state, forms, reductions, and when to take it. */
function members(): string {
  return mechanisms.map(member).join("\n");
}

function member(own: Mechanism): string {
  const { id, title, equation, use, sources, inputs, state, traits, forms, reductions } = own;
  const missing = formNames.flatMap((name) => {
    const form = forms[name];
    return typeof form === "function" ? [] : [`no ${name}: ${form.absent}`];
  });
  const has = formNames.filter((name) => typeof forms[name] === "function").join(", ");
  const parts = Object.entries(state).map(([name, part]) => [name, part] as const);
  const reach = [traits.causal ? "causal" : "", traits.full ? "full" : ""].filter((word) => word !== "");
  const lines = [
    ...sources.map(({ title: paper, id: at, equations }) => `- source: ${paper}, ${at}: ${equations}`),
    `- inputs: ${symbols(Object.entries(inputs))}`,
    `- state: ${symbols(parts)}${traits.constantState ? ", of fixed size" : ""}`,
    `- forms: ${[has, ...missing].join("; ")}`,
    `- sees: ${reach.join(" and ")}${traits.prefixExact === true ? "" : `; ${traits.prefixExact}`}`,
    ...reductions.map(({ to, when }) => `- is \`${to}\` where ${when}`),
  ];
  const head = [`### ${title}`, `\`${id}\`: ${use ?? ""}`];
  const formula = equation === undefined ? [] : [["```text", equation, "```"].join("\n")];
  const blocks = [...head, ...formula, lines.join("\n")];
  return `${blocks.join("\n\n")}\n`;
}

/** The feature maps as they describe themselves. */
function maps(): string {
  const rows = featureMaps.map(({ id, equation, width, isPositive, draw }) => [
    `\`${id}\``,
    equation.replaceAll("|", "\\|"),
    String(width(64)),
    isPositive ? "yes" : "no",
    draw === undefined ? "no" : "yes",
  ]);
  return table(["id", "φ(x)", "features of K = 64", "positive kernel", "drawn at random"], rows);
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
    ["docs/mechanisms.md", "mechanisms", family()],
    ["docs/mechanisms.md", "members", members()],
    ["docs/mechanisms.md", "maps", maps()],
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
