import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { brokenLinks, snippetsOf, writeSnippets } from "../../scripts/docs.ts";
import { root } from "../../scripts/rooms.ts";
import { repositorySources } from "../../scripts/structure.ts";
import { derivedParts, withPart } from "../../scripts/tables.ts";

const timeout = 120_000;
const sources = repositorySources();
const files = writeSnippets(sources);

/** Runs a module and keeps what it prints to itself. */
async function runQuietly(file: string): Promise<void> {
  const { log } = console;
  console.log = () => {};
  try {
    await import(pathToFileURL(file).href);
  } finally {
    console.log = log;
  }
}

for (const [snippet, file] of files) {
  const name = `docs example ${snippet.path}:${snippet.line} runs`;
  if (snippet.runs) test(name, { timeout }, () => runQuietly(file));
}

const examples = existsSync(join(root, "examples")) ? readdirSync(join(root, "examples")) : [];
for (const name of examples.filter((name) => name.endsWith(".ts"))) {
  test(`example ${name} runs and prints`, { timeout }, async () => {
    const program = [...process.execArgv, join("examples", name)];
    const { stdout } = await promisify(execFile)(process.execPath, program, { cwd: root, timeout });
    assert.notEqual(stdout.trim(), "");
  });
}

test("links of the pages lead somewhere", () => {
  assert.deepEqual(
    brokenLinks(sources, (path) => existsSync(join(root, path))),
    [],
  );
});

test("derived parts of the pages are up to date", () => {
  for (const [page, name, text] of derivedParts()) {
    const before = readFileSync(join(root, page), "utf8");
    assert.equal(withPart(before, name, text), before, `${page}: run npm run docs`);
    assert.notEqual(withPart(before, name, `${text}x`), before, "a change would be seen");
  }
});

test("docs blocks are found in pages and docstrings", () => {
  const page = "text\n```ts\nconst a = 1;\n```\n```text\nno\n```\n```ts no-run\nconst b = 2;\n```\n";
  const plain =
    "/**\n * Adds.\n *\n * @example\n * add(1,\n *   2);\n * @throws never\n */\nexport const add = 1;\n";
  const fenced = "/**\n * Adds.\n * @example\n * ```ts\n * add(1);\n * ```\n */\n";
  const path = "src/ops/add.ts";
  assert.deepEqual(
    snippetsOf([
      { path: "docs/a.md", text: page },
      { path, text: plain },
      { path, text: fenced },
    ]),
    [
      { path: "docs/a.md", line: 3, code: "const a = 1;", runs: true },
      { path: "docs/a.md", line: 9, code: "const b = 2;", runs: false },
      { path, line: 5, code: "add(1,\n  2);", runs: true },
      { path, line: 5, code: "add(1);", runs: true },
    ],
  );
});

test("links that lead nowhere are found", () => {
  const page = (text: string) => brokenLinks([{ path: "docs/a.md", text }], (path) => path === "README.md");
  assert.deepEqual(page("# One two\n[a](#one-two) [b](../README.md) [c](https://example.org)"), []);
  assert.deepEqual(page("# One\n[a](#two) [b](b.md)"), ["docs/a.md: #two", "docs/a.md: b.md"]);
});
