/**
 * Writes the register-tiled block product that every matmul-like kernel is built on. Accumulators and operands of a
 * tile must stay within the 15 vector registers V8 hands out, which is why each tier has its own tile.
 */

interface Tier {
  /** Value of the TIER build constant. */
  readonly tier: number;
  readonly letter: string;
  /** Columns of the widest panel and the row counts of its tiles, tallest first; narrower panels follow. */
  readonly panels: readonly { readonly columns: number; readonly rows: readonly number[] }[];
  /** Steps of the inner axis per turn of the loop. */
  readonly unroll: number;
}

/** Panels for the last columns; one column wide only where n < 4. */
const narrow = [
  { columns: 4, rows: [4, 1] },
  { columns: 1, rows: [4, 1] },
] as const;

const tiers: readonly Tier[] = [
  { tier: 0, letter: "A", unroll: 1, panels: [{ columns: 8, rows: [5, 4, 3, 2, 1] }, ...narrow] },
  { tier: 1, letter: "B", unroll: 1, panels: [{ columns: 8, rows: [6, 5, 4, 3, 2, 1] }, ...narrow] },
  {
    tier: 2,
    letter: "C",
    unroll: 2,
    panels: [{ columns: 16, rows: [4, 3, 2, 1] }, { columns: 8, rows: [4, 1] }, ...narrow],
  },
];

const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
const lines = (parts: readonly string[]): string => parts.join("\n");

const header = `// Block products on register tiles. All strides are in bytes; addresses need 4-byte alignment only.
//
//   gemmBlock(m, n, k, a, aRow, aInner, b, bRow, c, cRow, mode)
//     C[i, j] (mode 0 =, 1 +=, 2 -=) sum over p of A[i, p] B[p, j], i < m, j < n, p < k.
//     A[i, p] lies at a + i aRow + p aInner (any strides: a transposed A costs nothing), B[p, j] at b + p bRow + 4 j,
//     C[i, j] at c + i cRow + 4 j. C overlaps neither operand. k = 0 leaves zeros in mode 0.
//   gemmLower(...the same)
//     Only what lies on and below the diagonal (j <= i) is promised; above it elements are either untouched or full.
//   gemmLowerLeft(...the same)
//     A[i, p] = 0 for p > i: the sum stops with the last row of the tile. Zeros above the diagonal must be in memory.
//   gemmUpperLeft(...the same)
//     A[i, p] = 0 for p < i: the sum starts with the first row of the tile. Zeros below the diagonal must be in memory.
//   transposeBlock(rows, cols, src, srcRow, dst, dstRow)
//     dst[j, i] = src[i, j], i < rows, j < cols.
//
// Each element of C is one ascending multiply-add chain over p, started from 0 or from C and rounded as fma() of the
// tier, wherever it falls in a tile: the same row gives the same bits alone or among others, and a chain cut in two
// calls (mode 0, then 1) gives the bits of one call.
import { fma } from "../simd.as";
`;

/** One tile: R rows by V vectors of four columns. `keep` of the four-column tile drops leading lanes when storing. */
function tile(tier: Tier, rows: number, columns: number): string {
  const vectors = range(Math.max(1, columns >> 2));
  const rowList = range(rows);
  // The scheduler of V8 before 12 visits loop variables in order and places what feeds them from the end of the loop
  // backwards: only with the last row first does each broadcast load land beside its products instead of spilling.
  const lastFirst = range(rows).reverse();
  const name = `tile${tier.letter}${rows}x${columns}`;
  const skip = columns === 4 ? ", skip: i32" : "";
  const load = columns === 1 ? "v128.load32_zero" : "v128.load";
  const at = (v: number): string => (v === 0 ? "" : `, ${16 * v}`);
  const row = (base: string, i: number): string => (i === 0 ? base : `${base}${i}`);
  const pointers = (base: string, stride: string): string[] =>
    rowList
      .slice(1)
      .map((i) => `  ${base === "a" ? "let" : "const"} ${base}${i} = ${row(base, i - 1)} + ${stride};`);
  const each = (text: (i: number, v: number) => string): string[] =>
    rowList.map((i) => `  ${vectors.map((v) => text(i, v)).join(" ")}`);
  const step = [
    ...vectors.map((v) => `    const b${v} = ${load}(b${at(v)});`),
    ...lastFirst.flatMap((i) => [
      `    s = v128.load_splat<f32>(${row("a", i)}); ${row("a", i)} += aInner;`,
      `    ${vectors.map((v) => `x${i}${v} = fma(s, b${v}, x${i}${v});`).join(" ")}`,
    ]),
    "    b += bRow;",
  ];
  const renamed = (u: number): string[] =>
    step.map((line) => line.replaceAll(/\bb(\d)\b/g, `b$1${"_".repeat(u)}`));
  const loop =
    tier.unroll === 1
      ? ["  for (; k > 0; k--) {", ...step, "  }"]
      : [
          `  for (; k >= ${tier.unroll}; k -= ${tier.unroll}) {`,
          ...range(tier.unroll).flatMap(renamed),
          "  }",
          "  for (; k > 0; k--) {",
          ...step,
          "  }",
        ];
  const store =
    columns === 4
      ? rowList.map((i) => `  storeTail(${row("c", i)}, x${i}0, skip);`)
      : columns === 1
        ? rowList.map((i) => `  v128.store32_lane(${row("c", i)}, x${i}0, 0);`)
        : each((i, v) => `v128.store(${row("c", i)}, x${i}${v}${at(v)});`);
  return lines([
    `function ${name}(k: i32, a: usize, aRow: usize, aInner: usize, b: usize, bRow: usize, c: usize, cRow: usize, mode: i32${skip}): void {`,
    ...pointers("a", "aRow"),
    ...pointers("c", "cRow"),
    "  let s = i32x4.splat(0);",
    ...each((i, v) => `let x${i}${v} = i32x4.splat(0);`),
    "  if (mode != 0) {",
    ...each((i, v) => `x${i}${v} = ${load}(${row("c", i)}${at(v)});`),
    "    if (mode == 2) {",
    ...each((i, v) => `x${i}${v} = f32x4.neg(x${i}${v});`),
    "    }",
    "  }",
    ...loop,
    "  if (mode == 2) {",
    ...each((i, v) => `x${i}${v} = f32x4.neg(x${i}${v});`),
    "  }",
    ...store,
    "}",
    "",
  ]);
}

/** All rows of one column panel, tallest tiles first. `shape` 2 ends the inner axis, 3 starts it, at the tile's rows. */
function panel(tier: Tier, columns: number, rows: readonly number[]): string {
  const skip = columns === 4 ? ", skip: i32" : "";
  const pass = columns === 4 ? ", skip" : "";
  const body = rows.map((r) =>
    lines([
      `  for (; m - i >= ${r}; i += ${r}) {`,
      "    const first = shape == 3 ? min(i, k) : 0;",
      `    const last = shape == 2 ? min(i + ${r}, k) : k;`,
      `    tile${tier.letter}${r}x${columns}(last - first, a + <usize>first * aInner, aRow, aInner, b + <usize>first * bRow, bRow, c, cRow, mode${pass});`,
      `    a += ${r} * aRow; c += ${r} * cRow;`,
      "  }",
    ]),
  );
  return lines([
    `function panel${tier.letter}${columns}(shape: i32, m: i32, k: i32, a: usize, aRow: usize, aInner: usize, b: usize, bRow: usize, c: usize, cRow: usize, mode: i32${skip}): void {`,
    "  let i: i32 = 0;",
    ...body,
    "}",
    "",
  ]);
}

/** Cuts the columns into panels, widest first; the last columns share a panel with finished ones where n allows. */
function product(tier: Tier): string {
  const widths = tier.panels.map((p) => p.columns).filter((columns) => columns >= 4);
  const call = (columns: number, tail = ""): string =>
    `panel${tier.letter}${columns}(shape, m - i, k, a + <usize>i * aRow, aRow, aInner, b + (<usize>j << 2), bRow, c + <usize>i * cRow + (<usize>j << 2), cRow, mode${tail});`;
  const loops = widths.flatMap((columns) => [
    `  for (; n - j >= ${columns}; j += ${columns}) {`,
    "    const i = lower ? min(j, m) : 0;",
    `    ${call(columns, columns === 4 ? ", 0" : "")}`,
    "  }",
  ]);
  return lines([
    `function product${tier.letter}(shape: i32, m: i32, n: i32, k: i32, a: usize, aRow: usize, aInner: usize, b: usize, bRow: usize, c: usize, cRow: usize, mode: i32): void {`,
    "  const lower = shape == 1;",
    "  let j: i32 = 0;",
    ...loops,
    "  if (j < n && n >= 4) {",
    "    const i = lower ? min(j, m) : 0;",
    "    const skip = 4 - (n - j);",
    "    j = n - 4;",
    `    ${call(4, ", skip")}`,
    "    return;",
    "  }",
    "  for (; j < n; j++) {",
    "    const i = lower ? min(j, m) : 0;",
    `    ${call(1)}`,
    "  }",
    "}",
    "",
  ]);
}

const storeTail = `/** Stores the lanes of x from \`skip\` on. */
function storeTail(c: usize, x: v128, skip: i32): void {
  if (skip == 0) { v128.store(c, x); return; }
  if (skip == 1) v128.store32_lane(c, x, 1, 4);
  if (skip < 3) v128.store32_lane(c, x, 2, 8);
  v128.store32_lane(c, x, 3, 12);
}
`;

const parameters =
  "m: i32, n: i32, k: i32, a: usize, aRow: usize, aInner: usize, b: usize, bRow: usize, c: usize, cRow: usize, mode: i32";
const passed = "m, n, k, a, aRow, aInner, b, bRow, c, cRow, mode";

function entry(name: string, shape: number): string {
  return lines([
    `export function ${name}(${parameters}): void {`,
    ...tiers.map((t) => `  if (TIER == ${t.tier}) product${t.letter}(${shape}, ${passed});`),
    "}",
    "",
  ]);
}

const transpose = `export function transposeBlock(rows: i32, cols: i32, src: usize, srcRow: usize, dst: usize, dstRow: usize): void {
  let i: i32 = 0;
  for (; rows - i >= 4; i += 4) {
    let from = src + <usize>i * srcRow;
    let to = dst + (<usize>i << 2);
    const row2 = srcRow << 1, row3 = row2 + srcRow, out2 = dstRow << 1, out3 = out2 + dstRow;
    let j: i32 = 0;
    for (; cols - j >= 4; j += 4) {
      const r0 = v128.load(from);
      const r1 = v128.load(from + srcRow);
      const r2 = v128.load(from + row2);
      const r3 = v128.load(from + row3);
      const lo01 = i32x4.shuffle(r0, r1, 0, 4, 1, 5);
      const hi01 = i32x4.shuffle(r0, r1, 2, 6, 3, 7);
      const lo23 = i32x4.shuffle(r2, r3, 0, 4, 1, 5);
      const hi23 = i32x4.shuffle(r2, r3, 2, 6, 3, 7);
      v128.store(to, i64x2.shuffle(lo01, lo23, 0, 2));
      v128.store(to + dstRow, i64x2.shuffle(lo01, lo23, 1, 3));
      v128.store(to + out2, i64x2.shuffle(hi01, hi23, 0, 2));
      v128.store(to + out3, i64x2.shuffle(hi01, hi23, 1, 3));
      from += 16;
      to += dstRow << 2;
    }
    for (; j < cols; j++) {
      store<i32>(to, load<i32>(from));
      store<i32>(to, load<i32>(from + srcRow), 4);
      store<i32>(to, load<i32>(from + row2), 8);
      store<i32>(to, load<i32>(from + row3), 12);
      from += 4;
      to += dstRow;
    }
  }
  for (; i < rows; i++) {
    let from = src + <usize>i * srcRow;
    let to = dst + (<usize>i << 2);
    for (let j: i32 = 0; j < cols; j++) {
      store<i32>(to, load<i32>(from));
      from += 4;
      to += dstRow;
    }
  }
}
`;

/** The text of generated/tile.as.ts. */
export function generate(): string {
  const entries = ["gemmBlock", "gemmLower", "gemmLowerLeft", "gemmUpperLeft"].map(entry);
  const perTier = tiers.map((t) => {
    const tiles = t.panels.flatMap((p) => p.rows.map((rows) => tile(t, rows, p.columns)));
    return lines([...tiles, ...t.panels.map((p) => panel(t, p.columns, p.rows)), product(t)]);
  });
  return lines([header, storeTail, ...perTier, ...entries, transpose]);
}
