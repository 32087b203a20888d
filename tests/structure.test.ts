import assert from "node:assert/strict";
import { test } from "node:test";
import type { Source } from "../scripts/structure/source.ts";
import { repositorySources, structureProblems } from "../scripts/structure.ts";

test("the repository keeps the rules of the house", () => {
  const sources = repositorySources();
  assert.ok(sources.length > 20, "the repository's files were found");
  const problems = structureProblems(sources).map(({ path, line, message }) => `${path}:${line} ${message}`);
  assert.deepEqual(problems, []);
});

const mechanism = { path: "src/mechanisms/gated-delta/index.ts", text: "/** It. */\nexport const id = 1;\n" };

/** One planted fault each: the file that has it and the words the rule must say. */
const faults: Record<string, readonly [path: string, text: string, message: RegExp]> = {
  "a room imports one above it": ["src/ops/a.ts", 'import { x } from "../nn/x.ts";\nx;', /must not import/],
  "a room imports the package's entry": ["src/ops/a.ts", 'import { x } from "../index.ts";', /no entry/],
  "a mechanism imports another": [
    "src/mechanisms/kda/index.ts",
    'import { id } from "../gated-delta/index.ts";',
    /mechanism kda imports mechanism gated-delta/,
  ],
  "an engine room imports a mechanism": [
    "src/mechanisms/recurrence/a.ts",
    'import { id } from "../gated-delta/index.ts";',
    /engine room imports/,
  ],
  "a reference runs the engine": [
    "src/mechanisms/kda/reference.ts",
    'import { scan } from "../recurrence/scan.ts";',
    /only types from what it judges/,
  ],
  "source imports outside src": ["src/ops/a.ts", 'import { x } from "../../bench/x.ts";', /outside src/],
  "source imports a test": ["src/ops/a.ts", 'import { x } from "./b.test.ts";', /imports a test/],
  "an import without its ending": ["src/ops/a.ts", 'import { x } from "./b";', /imports end in .ts/],
  "an example reaches into the source": [
    "examples/a.ts",
    'import { x } from "../src/a.ts";',
    /examples import/,
  ],
  "a long file": ["src/ops/a.ts", "\n".repeat(501), /501 lines/],
  "a long example": ["examples/a.ts", "\n".repeat(61), /61 lines/],
  "a long function": ["src/ops/a.ts", `function long() {${"\n".repeat(60)}}`, /long has 61 lines/],
  "a long method of a test": [
    "src/a.test.ts",
    `class A { long() {${"\n".repeat(60)}} }`,
    /long has 61 lines/,
  ],
  "the type any": ["src/ops/a.ts", "const a: any = 1;", /any:/],
  "an enum": ["tests/a.ts", "enum A { b }", /enum:/],
  "a default export": ["scripts/a.ts", "export default 1;", /default export/],
  "a namespace": ["scripts/a.ts", "namespace A {}", /namespace:/],
  "an export without a sentence": ["src/ops/a.ts", "export function f() {}", /f is exported without/],
  "a call at import": ["src/ops/a.ts", "start();", /runs when it is imported/],
  "an await at import": ["src/ops/a.ts", "const a = await start();", /awaits at the top level/],
  "an import for its effects": ["src/ops/a.ts", 'import "./b.ts";', /side effects/],
  "an error without a code": ["src/ops/a.ts", 'function f() { throw new Error("a"); }', /use a class/],
  "a kernel with state": ["src/ops/kernels/a.as.ts", "let a: i32 = 0;", /keeps no state/],
  "a comparison with a mechanism": [
    "src/models/a.ts",
    'function f(id: string) { return id === "gated-delta"; }',
    /by name/,
  ],
  "a switch over mechanisms": [
    "src/models/a.ts",
    'function f(id: string) { switch (id) { case "gated-delta": } }',
    /by name/,
  ],
  "a vague name": ["src/ops/utils.ts", "", /says nothing/],
  "a vague folder": ["src/common/a.ts", "", /says nothing/],
  "a name in capitals": ["src/ops/MatMul.ts", "", /kebab-case/],
  "a thing left to do": ["src/ops/a.ts", `// ${"TO"}${"DO"} later`, /do it/],
  "a path of one machine": ["docs/a.md", `see ${"/wo"}rk/x`, /one machine/],
  "a file that is not there": ["docs/a.md", `see ${"DES"}IGN.md`, /not in the repository/],
};

for (const [name, [path, text, message]] of Object.entries(faults)) {
  test(`structure catches ${name}`, () => {
    const problems = structureProblems([mechanism, { path, text }]);
    const found = problems.filter((problem) => problem.path === path && message.test(problem.message));
    assert.equal(found.length, 1, JSON.stringify(problems));
  });
}

test("structure catches files that import each other", () => {
  const a: Source = { path: "src/ops/a.ts", text: 'import { b } from "./b.ts";' };
  const b: Source = { path: "src/ops/b.ts", text: 'import { a } from "./a.ts";' };
  assert.match(structureProblems([a, b])[0]?.message ?? "", /import each other/);
  const typesOnly: Source = { path: "src/ops/b.ts", text: 'import type { a } from "./a.ts";' };
  assert.deepEqual(structureProblems([a, typesOnly]), []);
});

test("structure lets lawful things pass", () => {
  const lawful: Source[] = [
    mechanism,
    { path: "src/nn/a.ts", text: 'import { x } from "../ops/x.ts";' },
    { path: "src/tasks/a.ts", text: 'import { x } from "../report/x.ts";' },
    { path: "src/mechanisms/all.ts", text: 'export { id } from "./gated-delta/index.ts";' },
    { path: "src/mechanisms/kda/index.ts", text: 'import { scan } from "../recurrence/scan.ts";' },
    { path: "src/mechanisms/kda/reference.ts", text: 'import type { Axes } from "../recurrence/axes.ts";' },
    { path: "src/models/presets/a.ts", text: 'const a = (id: string) => id === "gated-delta";' },
    { path: "src/ops/a.test.ts", text: 'import { x } from "../nn/x.ts";\nx();' },
    { path: "src/ops/kernels/a.as.ts", text: "const a = memory.data<f32>([1]);" },
  ];
  assert.deepEqual(structureProblems(lawful), []);
});
