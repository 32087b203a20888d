/**
 * Writes the sweep of a panel of value columns over a tile of tokens, two tokens at a time. One loop over the rows of
 * the state decays it, writes the pair before, and gathers what both tokens of the pair retrieve and read of it; how the
 * second token sees the first is scalars. A row is loaded and stored once for two tokens.
 *
 * The tiers differ in width and order: 256-bit pairs need sixteen columns, all loads and then all stores side by side;
 * V8's 15 128-bit registers hold the eight sums of eight columns.
 */

interface Layout {
  readonly name: "Plain" | "Narrow" | "Wide";
  readonly vectors: readonly number[];
}

const layouts: readonly Layout[] = [
  { name: "Plain", vectors: [0, 1] },
  { name: "Narrow", vectors: [0, 1] },
  { name: "Wide", vectors: [0, 1, 2, 3] },
];

/** How the state decays in a sweep: not, by one slow or fast gate, or by a gate of either kind for each row. */
type Gate = "none" | "slow" | "fast" | "key";

const at = (bytes: number): string => (bytes === 0 ? "" : `, ${bytes}`);
const indent = (lines: readonly string[], depth = 1): string[] =>
  lines.map((line) => `${"  ".repeat(depth)}${line}`);

const header = `// One pass of a state panel over a tile of tokens, two at a time.
import { fma } from "../../../../device/wasm/kernels/simd.as";
import { slowMask } from "../delta-job.as";
import { COEFFICIENTS, FAST, SLOW } from "../delta-pack.as";
import { Work } from "../delta-work.as";
`;

const decayed: Readonly<Record<Gate, (i: number) => string>> = {
  none: (i) => `z${i}`,
  slow: (i) => `fma(a, z${i}, z${i})`,
  fast: (i) => `f32x4.mul(a, z${i})`,
  key: (i) => `fma(a, z${i}, v128.and(z${i}, slow))`,
};

/** A row takes its decay and what the pair before wrote; e is the row afterwards. */
function updateRow(gate: Gate, { name, vectors }: Layout): string[] {
  const loads: Readonly<Record<Gate, string[]>> = {
    none: [],
    slow: ["const a = v128.load32_splat(c, 48);"],
    fast: ["const a = v128.load32_splat(c, 48);"],
    key: ["const a = v128.load32_splat(before, 8);", "const slow = slowMask(a);"],
  };
  // A decay, or a multiplication and an addition instead of one of both, and they no longer fit into registers.
  const held = name !== "Plain" && (gate === "none" || gate === "key");
  const written = (token: number, i: number): string =>
    held ? `${token === 0 ? "u" : "y"}${i}` : `v128.load(u${at(64 * token + 16 * i)})`;
  const steps: ((i: number) => string)[] = [
    (i) => `const z${i} = v128.load(s${at(16 * i)});`,
    (i) => `let e${i} = ${decayed[gate](i)};`,
    (i) => `e${i} = fma(w, ${written(0, i)}, e${i});`,
    (i) => `e${i} = fma(y, ${written(1, i)}, e${i});`,
    (i) => `v128.store(s, e${i}${at(16 * i)});`,
  ];
  // A store keeps the next vector's loads behind it.
  const ordered =
    name === "Wide"
      ? steps.flatMap((step) => vectors.map(step))
      : vectors.flatMap((i) => steps.map((step) => step(i)));
  return [
    ...loads[gate],
    "const w = v128.load32_splat(before), y = v128.load32_splat(before, 4);",
    ...ordered,
    "before += 16;",
    "s += 64;",
  ];
}

/** What both tokens retrieve (r, t) and read (p, x), in the order in which they are declared. */
const sums = ["r", "t", "p", "x"] as const;

/** Adds a row to the sums: the last first, so that V8 before 12 leaves each factor beside its products. */
function readRow({ vectors }: Layout): string[] {
  return [
    ...[...sums.entries()]
      .reverse()
      .flatMap(([i, sum]) => [
        `const m${i} = v128.load32_splat(row${at(4 * i)});`,
        ...vectors.map((v) => `${sum}${v} = fma(m${i}, e${v}, ${sum}${v});`),
      ]),
    "row += 16;",
  ];
}

function rows(gate: Gate, layout: Layout): string[] {
  if (gate === "key") {
    // Gates of both kinds beside eight sums are too much for the registers: two loops.
    return [
      "const written = before + rowsBytes;",
      "while (before < written) {",
      ...indent(updateRow(gate, layout)),
      "}",
      "s = panel;",
      "while (row < end) {",
      ...indent([
        ...layout.vectors.map((i) => `const e${i} = v128.load(s${at(16 * i)});`),
        ...readRow(layout),
        "s += 64;",
      ]),
      "}",
    ];
  }
  return ["while (row < end) {", ...indent([...updateRow(gate, layout), ...readRow(layout)]), "}"];
}

/** The loops of a variant: which one runs is known before the first row. */
function choose(key: boolean, text: (gate: Gate) => string[]): string[] {
  if (key) return text("key");
  return [
    "const kind = load<i32>(c, 52);",
    "if (kind == SLOW) {",
    ...indent(text("slow")),
    "} else if (kind == FAST) {",
    ...indent(text("fast")),
    "} else {",
    ...indent(text("none")),
    "}",
  ];
}

/** Written values and outputs of both tokens, once their sums are complete. */
function finish({ vectors }: Layout): string[] {
  const factor = (word: number): string => `v128.load32_splat(c${at(4 * word)})`;
  const each = (text: (i: number, at16: string) => string): string[] =>
    vectors.map((i) => text(i, at(16 * i)));
  return [
    `const b1 = ${factor(0)}, n1 = ${factor(1)}, f1 = ${factor(10)};`,
    ...each((i, a) => `const g${i} = fma(n1, r${i}, f32x4.mul(b1, v128.load(v${a})));`),
    ...each((i) => `u${i} = f32x4.mul(f1, g${i});`),
    ...each((i, a) => `v128.store(u, u${i}${a});`),
    `const b2 = ${factor(2)}, n2 = ${factor(3)}, n21 = ${factor(4)}, f2 = ${factor(11)};`,
    "const second = 2 * pair + 1 < tokens;",
    "const v2 = second ? v + vRow : v;",
    ...each((i, a) => `const h${i} = fma(n21, g${i}, fma(n2, t${i}, f32x4.mul(b2, v128.load(v2${a}))));`),
    ...each((i) => `y${i} = f32x4.mul(f2, h${i});`),
    ...each((i) => `v128.store(u, y${i}, ${64 + 16 * i});`),
    `const m1 = ${factor(5)}, c11 = ${factor(6)};`,
    ...each((i, a) => `v128.store(o, fma(c11, g${i}, f32x4.mul(m1, p${i}))${a});`),
    `const m2 = ${factor(7)}, c21 = ${factor(8)}, c22 = ${factor(9)};`,
    "const o2 = second ? o + oRow : work.spare;",
    ...each((i, a) => `v128.store(o2, fma(c22, h${i}, fma(c21, g${i}, f32x4.mul(m2, x${i})))${a});`),
    "v += vRow << 1;",
    "o += oRow << 1;",
  ];
}

function sweep(key: boolean, layout: Layout): string {
  const names = sums.flatMap((sum) => layout.vectors.map((i) => `${sum}${i}`));
  return [
    `function sweep${key ? "Keys" : "Scalars"}${layout.name}(work: Work, panel: usize, keyWidth: i32, v: usize, vRow: usize, o: usize, oRow: usize): void {`,
    ...indent([
      "const u = work.u, tokens = work.tokens;",
      "memory.fill(u, 0, 128);",
      `let ${layout.vectors.flatMap((i) => [`u${i} = i32x4.splat(0)`, `y${i} = i32x4.splat(0)`]).join(", ")};`,
      "const pairBytes = (<usize>work.stride) << 4, rowsBytes = (<usize>keyWidth) << 4;",
      "let c = work.coefficients, before = work.zeros;",
      "for (let pair = 0; 2 * pair < tokens; pair++) {",
      ...indent([
        `let ${names.map((name) => `${name} = f32x4.splat(0)`).join(", ")};`,
        "let s = panel, row = work.rows + (<usize>pair) * pairBytes;",
        "const end = row + rowsBytes;",
        ...choose(key, (gate) => rows(gate, layout)),
        "c += COEFFICIENTS;",
        ...finish(layout),
        "before = work.writes + (<usize>pair) * pairBytes;",
      ]),
      "}",
      "let s = panel;",
      "const end = before + rowsBytes;",
      ...choose(key, (gate) => ["while (before < end) {", ...indent(updateRow(gate, layout)), "}"]),
    ]),
    "}",
    "",
  ].join("\n");
}

/** What the rest of the room calls: sixteen columns, or eight at a time as far as there are any. */
function entry(key: boolean): string {
  const name = `sweep${key ? "Keys" : "Scalars"}`;
  const narrow = (layout: string): string[] => [
    `  ${name}${layout}(work, panel, keyWidth, v, vRow, o, oRow);`,
    `  if (width > 8) ${name}${layout}(work, panel + 32, keyWidth, v + 32, vRow, o + 32, oRow);`,
  ];
  return [
    `export function ${name}(work: Work, panel: usize, keyWidth: i32, width: i32, v: usize, vRow: usize, o: usize, oRow: usize): void {`,
    "  if (TIER == 0) {",
    ...indent(narrow("Plain")),
    "  } else if (TIER == 1) {",
    ...indent(narrow("Narrow")),
    `  } else ${name}Wide(work, panel, keyWidth, v, vRow, o, oRow);`,
    "}",
    "",
  ].join("\n");
}

/** The text of generated/delta-pair-sweep.as.ts. */
export function generate(): string {
  const variants = [false, true].flatMap((key) => [
    ...layouts.map((layout) => sweep(key, layout)),
    entry(key),
  ]);
  return [header, ...variants].join("\n");
}
