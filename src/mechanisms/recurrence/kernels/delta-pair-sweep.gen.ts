/**
 * Writes the sweep of a panel of value columns over a tile of tokens, two tokens at a time. One loop over the rows of
 * the state decays it, writes the pair before, and gathers what both tokens of the pair retrieve and read of it; how the
 * second token sees the first is scalars. A row is loaded and stored once for two tokens.
 *
 * Two blocks of columns take turns pair by pair: while the sums of one end in what its pair writes, a chain of five
 * products, the rows of the other are under way. A block of a pair is a function of its own, called from two places so
 * that it stays one: inside these loops V8 before 12 would unroll the rows and run out of registers.
 *
 * The tiers differ in width and order: 256-bit pairs need sixteen columns, all loads and then all stores side by side;
 * V8's 15 128-bit registers hold the eight sums of eight columns.
 */

interface Layout {
  readonly name: "Plain" | "Narrow" | "Wide";
  readonly vectors: readonly number[];
  /** Bytes from a block of columns to the next, in the state. */
  readonly apart: string;
}

const layouts: readonly Layout[] = [
  { name: "Plain", vectors: [0, 1], apart: "32" },
  { name: "Narrow", vectors: [0, 1], apart: "32" },
  { name: "Wide", vectors: [0, 1, 2, 3], apart: "((<usize>keyWidth) << 6)" },
];

/** How the state decays in a sweep: not, by one slow or fast gate, or by a gate of either kind for each row. */
type Gate = "none" | "slow" | "fast" | "key";

/** Byte of a pair's slot from which on it says where its rows lie. */
const ROWS = 56;

const at = (bytes: number): string => (bytes === 0 ? "" : `, ${bytes}`);
const indent = (lines: readonly string[], depth = 1): string[] =>
  lines.map((line) => `${"  ".repeat(depth)}${line}`);

const header = `// One pass of a state panel over a tile of tokens, two at a time.
import { fma } from "../../../../device/wasm/kernels/simd.as";
import { slowMask } from "../delta-job.as";
import { FAST, PAIR, SLOW } from "../delta-pack.as";
import { Work } from "../delta-work.as";
`;

const decayed: Readonly<Record<Exclude<Gate, "none">, (i: number) => string>> = {
  slow: (i) => `fma(a, z${i}, z${i})`,
  fast: (i) => `f32x4.mul(a, z${i})`,
  key: (i) => `fma(a, z${i}, v128.and(z${i}, slow))`,
};

/** A decay, or a multiplication and an addition instead of one of both, and written values do not fit into registers. */
const isHeld = (gate: Gate, { name }: Layout): boolean =>
  name !== "Plain" && (gate === "none" || gate === "key");

/** A row takes its decay and what the pair before wrote; z is the row afterwards. */
function updateRow(gate: Gate, layout: Layout): string[] {
  const { name, vectors } = layout;
  const loads: Readonly<Record<Gate, string[]>> = {
    none: [],
    slow: ["const a = v128.load32_splat(c, 48);"],
    fast: ["const a = v128.load32_splat(c, 48);"],
    key: ["const a = v128.load32_splat(gate);", "const slow = slowMask(a);"],
  };
  const written = (token: number, i: number): string =>
    isHeld(gate, layout) ? `${token === 0 ? "u" : "y"}${i}` : `v128.load(u${at(64 * token + 16 * i)})`;
  const steps: ((i: number) => string)[] = [
    (i) => `let z${i} = v128.load(s${at(16 * i)});`,
    ...(gate === "none" ? [] : [(i: number) => `z${i} = ${decayed[gate](i)};`]),
    (i) => `z${i} = fma(w, ${written(0, i)}, z${i});`,
    (i) => `z${i} = fma(y, ${written(1, i)}, z${i});`,
    (i) => `v128.store(s, z${i}${at(16 * i)});`,
  ];
  // A store keeps the next vector's loads behind it.
  const ordered =
    name === "Wide"
      ? steps.flatMap((step) => vectors.map(step))
      : vectors.flatMap((i) => steps.map((step) => step(i)));
  return [
    ...loads[gate],
    "const w = v128.load32_splat(w1), y = v128.load32_splat(w2);",
    ...ordered,
    "w1 += 4;",
    "w2 += 4;",
    ...(gate === "key" ? ["gate += 4;"] : []),
    "s += 64;",
  ];
}

/** What both tokens retrieve (r, t) and read (p, x), in the order in which they are declared. */
const sums = ["r", "t", "p", "x"] as const;

/** The rows that they are products with, and where a pair says where these lie. */
const readRows = ["k1", "k2", "q1", "q2"] as const;

/** Adds a row to the sums: the last first, so that V8 before 12 leaves each factor beside its products. */
function readRow({ vectors }: Layout): string[] {
  return [
    ...[...sums.entries()]
      .reverse()
      .flatMap(([i, sum]) => [
        `const m${i} = v128.load32_splat(${readRows[i]});`,
        ...vectors.map((v) => `${sum}${v} = fma(m${i}, z${v}, ${sum}${v});`),
      ]),
    ...readRows.map((row) => `${row} += 4;`),
  ];
}

/** Loads what is held of the values that the pair before wrote. */
function holdWritten(gate: Gate, layout: Layout): string[] {
  if (!isHeld(gate, layout)) return [];
  const load = (name: string, from: number): string[] =>
    layout.vectors.map((i) => `${name}${i} = v128.load(u${at(from + 16 * i)})`);
  return [`const ${[...load("u", 0), ...load("y", 64)].join(", ")};`];
}

function rows(gate: Gate, layout: Layout): string[] {
  if (gate === "key") {
    // Gates of both kinds beside eight sums are too much for the registers: two loops.
    return [
      "const panel = s, written = w1 + bytes;",
      "while (w1 < written) {",
      ...indent(updateRow(gate, layout)),
      "}",
      "s = panel;",
      "while (k1 < end) {",
      ...indent([
        ...layout.vectors.map((i) => `const z${i} = v128.load(s${at(16 * i)});`),
        ...readRow(layout),
        "s += 64;",
      ]),
      "}",
    ];
  }
  return ["while (k1 < end) {", ...indent([...updateRow(gate, layout), ...readRow(layout)]), "}"];
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
    ...each((i, a) => `v128.store(u, f32x4.mul(f1, g${i})${a});`),
    `const b2 = ${factor(2)}, n2 = ${factor(3)}, n21 = ${factor(4)}, f2 = ${factor(11)};`,
    ...each((i, a) => `const h${i} = fma(n21, g${i}, fma(n2, t${i}, f32x4.mul(b2, v128.load(v2${a}))));`),
    ...each((i) => `v128.store(u, f32x4.mul(f2, h${i}), ${64 + 16 * i});`),
    `const m1 = ${factor(5)}, c11 = ${factor(6)};`,
    ...each((i, a) => `v128.store(o, fma(c11, g${i}, f32x4.mul(m1, p${i}))${a});`),
    `const m2 = ${factor(7)}, c21 = ${factor(8)}, c22 = ${factor(9)};`,
    ...each((i, a) => `v128.store(o2, fma(c22, h${i}, fma(c21, g${i}, f32x4.mul(m2, x${i})))${a});`),
  ];
}

const nameOf = (part: string, key: boolean, { name }: Layout): string =>
  `${part}${key ? "Keys" : "Scalars"}${name}`;

/** Where the rows lie that the pair in slot c writes, and their gates. */
function writtenRows(key: boolean): string[] {
  const rows = ["w1", "w2", ...(key ? ["gate"] : [])];
  return [`let ${rows.map((row, i) => `${row} = <usize>load<u32>(c, ${ROWS + 16 + 4 * i})`).join(", ")};`];
}

/** One pair over one block of columns; `c` are the coefficients of the pair before it. */
function pair(key: boolean, layout: Layout): string {
  const names = sums.flatMap((sum) => layout.vectors.map((i) => `${sum}${i}`));
  return [
    `function ${nameOf("pair", key, layout)}(c: usize, s: usize, bytes: usize, u: usize, v: usize, v2: usize, o: usize, o2: usize): void {`,
    ...indent([
      ...writtenRows(key),
      `let ${readRows.map((row, i) => `${row} = <usize>load<u32>(c + PAIR, ${ROWS + 4 * i})`).join(", ")};`,
      "const end = k1 + bytes;",
      `let ${names.map((name) => `${name} = f32x4.splat(0)`).join(", ")};`,
      ...choose(key, (gate) => [...holdWritten(gate, layout), ...rows(gate, layout)]),
      "c += PAIR;",
      ...finish(layout),
    ]),
    "}",
    "",
  ].join("\n");
}

/** What the pair in slot 0 wrote, and its decay. */
function last(key: boolean, layout: Layout): string {
  return [
    `function ${nameOf("last", key, layout)}(c: usize, s: usize, bytes: usize, u: usize): void {`,
    ...indent([
      ...writtenRows(key),
      "const end = w1 + bytes;",
      ...choose(key, (gate) => [
        ...holdWritten(gate, layout),
        "while (w1 < end) {",
        ...indent(updateRow(gate, layout)),
        "}",
      ]),
    ]),
    "}",
    "",
  ].join("\n");
}

/** A tile of tokens over one or two blocks of columns: slot 0 of what is written is the pair before. */
function sweep(key: boolean, layout: Layout): string {
  const further = 16 * layout.vectors.length;
  const one = nameOf("pair", key, layout);
  return [
    `function ${nameOf("sweep", key, layout)}(work: Work, panel: usize, keyWidth: i32, blocks: i32, u: usize, v: usize, vRow: usize, o: usize, oRow: usize): void {`,
    ...indent([
      "const tokens = work.tokens;",
      "const bytes = (<usize>keyWidth) << 2;",
      `const other = panel + ${layout.apart};`,
      "let c = work.pairs;",
      "for (let t = 0; t < tokens; t += 2) {",
      ...indent([
        "const second = t + 1 < tokens;",
        "const v2 = second ? v + vRow : v, o2 = second ? o + oRow : work.spare;",
        `${one}(c, panel, bytes, u, v, v2, o, o2);`,
        `if (blocks > 1) ${one}(c, other, bytes, u + ${4 * further}, v + ${further}, v2 + ${further}, o + ${further}, o2 + ${further});`,
        "c += PAIR;",
        "v += vRow << 1;",
        "o += oRow << 1;",
      ]),
      "}",
    ]),
    "}",
    "",
  ].join("\n");
}

/** What the rest of the room calls: `width` columns of one panel, or on tier C of two. */
function entry(key: boolean): string {
  const kind = key ? "Keys" : "Scalars";
  const byTier = (call: (layout: string, columns: number) => string): string[] => [
    `  if (TIER == 0) ${call("Plain", 8)}`,
    `  else if (TIER == 1) ${call("Narrow", 8)}`,
    `  else ${call("Wide", 16)}`,
  ];
  return [
    `export function sweep${kind}(work: Work, panel: usize, keyWidth: i32, width: i32, u: usize, v: usize, vRow: usize, o: usize, oRow: usize): void {`,
    ...byTier(
      (layout, columns) =>
        `sweep${kind}${layout}(work, panel, keyWidth, width > ${columns} ? 2 : 1, u, v, vRow, o, oRow);`,
    ),
    "}",
    "",
    `export function end${kind}(work: Work, panel: usize, keyWidth: i32, u: usize): void {`,
    "  const c = work.pairs, bytes = (<usize>keyWidth) << 2;",
    ...byTier((layout) =>
      layout === "Wide"
        ? `last${kind}Wide(c, panel, bytes, u);`
        : `{ last${kind}${layout}(c, panel, bytes, u); last${kind}${layout}(c, panel + 32, bytes, u + 128); }`,
    ),
    "}",
    "",
  ].join("\n");
}

/** The text of generated/delta-pair-sweep.as.ts. */
export function generate(): string {
  const variants = [false, true].flatMap((key) => [
    ...layouts.flatMap((layout) => [pair(key, layout), last(key, layout), sweep(key, layout)]),
    entry(key),
  ]);
  return [header, ...variants].join("\n");
}
