/**
 * Writes the sweep of one panel of 16 value columns over a tile of tokens, token by token, where the correction or the
 * output reads another state than the delta rule's. One loop over the rows of the state writes the token before, decays,
 * retrieves and reads. The tiers differ in its order: 256-bit pairs need all loads and then all stores side by side,
 * V8's 15 128-bit registers one vector after another.
 */

const vectors = [0, 1, 2, 3] as const;
const at = (i: number): string => (i === 0 ? "" : `, ${16 * i}`);
const each = (text: (i: number) => string): string[] => vectors.map(text);
const indent = (lines: readonly string[], depth = 1): string[] =>
  lines.map((line) => `${"  ".repeat(depth)}${line}`);

const header = `// One pass of a state panel over a tile of tokens, flags saying which state is read.
import { fma } from "../../../../device/wasm/kernels/simd.as";
import { READ_FIRST, slowMask, UNDECAYED } from "../delta-job.as";
import { Work } from "../delta-work.as";
`;

/** A row of the state takes what the token before wrote and then the decay: e is the row between the two. */
function updateRow(together: boolean): string[] {
  const write = (i: number): string => `const e${i} = fma(w, v128.load(u${at(i)}), v128.load(s${at(i)}));`;
  const decay = (i: number): string => `const s${i} = fma(a, e${i}, v128.and(e${i}, slow));`;
  const store = (i: number): string => `v128.store(s, s${i}${at(i)});`;
  if (together) return [...each(write), ...each(decay), ...each(store)];
  return vectors.flatMap((i) => [write(i), decay(i), store(i)]);
}

/** The sums of a token: its retrieval r and its read-out p. */
function rows(together: boolean): string[] {
  return [
    "while (key < end) {",
    ...indent([
      "const w = v128.load32_splat(before);",
      "const a = v128.load32_splat(gate);",
      "const slow = slowMask(a);",
      ...updateRow(together),
      "const k = v128.load32_splat(key);",
      ...each((i) => `r${i} = fma(k, v128.bitselect(e${i}, s${i}, early), r${i});`),
      "const x = v128.load32_splat(query);",
      ...each((i) => `p${i} = fma(x, v128.bitselect(e${i}, s${i}, first), p${i});`),
      "key += 4;",
      "query += 4;",
      "s += 64;",
      "before += 4;",
      "gate += 4;",
    ]),
    "}",
  ];
}

/** The written value and the output of the token, once its retrieval r and read-out p are complete. */
const finish = [
  "const b = v128.load32_splat(work.beta + offset4);",
  "const c = v128.load32_splat(work.overlap + offset4);",
  ...each((i) => `const u${i} = f32x4.mul(b, f32x4.sub(v128.load(v${at(i)}), r${i}));`),
  ...each((i) => `v128.store(u, u${i}${at(i)});`),
  "const m = f32x4.splat(work.scale);",
  ...each((i) => `v128.store(o, f32x4.mul(m, fma(c, u${i}, p${i}))${at(i)});`),
  "v += vRow;",
  "o += oRow;",
  "last = work.write + offset;",
];

function token(together: boolean): string[] {
  return [
    "const offset = (<usize>t) * rowBytes;",
    "const offset4 = (<usize>t) << 2;",
    ...each((i) => `let r${i} = f32x4.splat(0), p${i} = r${i};`),
    "let s = panel, key = work.erase + offset, query = work.query + offset;",
    "const end = key + ((<usize>keyWidth) << 2);",
    "let before = last, gate = work.gate + offset;",
    ...rows(together),
    ...finish,
  ];
}

function sweep(name: string, together: boolean): string {
  return [
    `function ${name}(work: Work, panel: usize, keyWidth: i32, v: usize, vRow: usize, o: usize, oRow: usize): void {`,
    ...indent([
      "const rowBytes = (<usize>work.stride) << 2;",
      "const u = work.u;",
      "memory.fill(u, 0, 64);",
      "const early = i32x4.splat(work.flags & UNDECAYED ? -1 : 0);",
      "const first = i32x4.splat(work.flags & READ_FIRST ? -1 : 0);",
      "let last = work.nothing;",
      "for (let t = 0; t < work.tokens; t++) {",
      ...indent(token(together)),
      "}",
      "const end = last + ((<usize>keyWidth) << 2);",
      "for (let s = panel; last < end; s += 64, last += 4) {",
      ...indent([
        "const w = v128.load32_splat(last);",
        ...each((i) => `v128.store(s, fma(w, v128.load(u${at(i)}), v128.load(s${at(i)}))${at(i)});`),
      ]),
      "}",
    ]),
    "}",
    "",
  ].join("\n");
}

const entry = `export function sweepOrdered(work: Work, panel: usize, keyWidth: i32, v: usize, vRow: usize, o: usize, oRow: usize): void {
  if (TIER < 2) narrowOrdered(work, panel, keyWidth, v, vRow, o, oRow);
  else wideOrdered(work, panel, keyWidth, v, vRow, o, oRow);
}
`;

/** The text of generated/delta-sweep.as.ts. */
export function generate(): string {
  return [header, sweep("narrowOrdered", false), sweep("wideOrdered", true), entry].join("\n");
}
