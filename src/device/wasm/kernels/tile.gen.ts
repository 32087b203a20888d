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

/** So few rows alone need wider tiles to have enough chains in flight. */
const few = [
  { rows: 1, columns: 32 },
  { rows: 2, columns: 16 },
] as const;

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
//     A[i, p] = 0 for p > i + max(k - m, 0): the sum stops with the last row of the tile. Zeros above that diagonal must
//     be in memory. Whole columns in front of a lower triangle are k - m columns more than rows.
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

const rowOf = (base: string, i: number): string => (i === 0 ? base : `${base}${i}`);
const at = (v: number): string => (v === 0 ? "" : `, ${16 * v}`);

/**
 * One step of the inner axis. The scheduler of V8 before 12 visits loop variables in order and places what feeds them
 * from the end of the loop backwards: only with the last one first does each load land beside its products instead of
 * being hoisted and spilled.
 */
function step(tier: Tier, rows: number, vectors: readonly number[], load: string): string[] {
  const lastFirst = range(rows).reverse();
  const splat = (i: number): string =>
    `    s = v128.load_splat<f32>(${rowOf("a", i)}); ${rowOf("a", i)} += aInner;`;
  const loadB = (v: number): string => `    const b${v} = ${load}(b${at(v)});`;
  const add = (i: number, v: number): string => `x${i}${v} = fma(s, b${v}, x${i}${v});`;
  if (rows === 1 && tier.unroll === 1) {
    const backwards = [...vectors].reverse();
    return [splat(0), ...backwards.map((v) => `${loadB(v)} ${add(0, v)}`), "    b += bRow;"];
  }
  const products = lastFirst.flatMap((i) => [splat(i), `    ${vectors.map((v) => add(i, v)).join(" ")}`]);
  return [...vectors.map(loadB), ...products, "    b += bRow;"];
}

function loop(tier: Tier, lines: readonly string[]): string[] {
  const once = ["  for (; k > 0; k--) {", ...lines, "  }"];
  if (tier.unroll === 1) return once;
  const copies = range(tier.unroll).flatMap((u) =>
    lines.map((line) => line.replaceAll(/\bb(\d)\b/g, `b$1${"_".repeat(u)}`)),
  );
  return [`  for (; k >= ${tier.unroll}; k -= ${tier.unroll}) {`, ...copies, "  }", ...once];
}

/** One tile of rows by columns; the four-column tile does not store its first `skip` lanes. */
function tile(tier: Tier, rows: number, columns: number): string {
  const vectors = range(Math.max(1, columns >> 2));
  const skip = columns === 4 ? ", skip: i32" : "";
  const load = columns === 1 ? "v128.load32_zero" : "v128.load";
  const further = range(rows).slice(1);
  const each = (text: (i: number, v: number) => string): string[] =>
    range(rows).map((i) => `  ${vectors.map((v) => text(i, v)).join(" ")}`);
  const negate = each((i, v) => `x${i}${v} = f32x4.neg(x${i}${v});`);
  const store = each((i, v) => {
    if (columns === 4) return `storeTail(${rowOf("c", i)}, x${i}0, skip);`;
    if (columns === 1) return `v128.store32_lane(${rowOf("c", i)}, x${i}0, 0);`;
    return `v128.store(${rowOf("c", i)}, x${i}${v}${at(v)});`;
  });
  return lines([
    `function tile${tier.letter}${rows}x${columns}(k: i32, a: usize, aRow: usize, aInner: usize, b: usize, bRow: usize, c: usize, cRow: usize, mode: i32${skip}): void {`,
    ...further.map((i) => `  let a${i} = ${rowOf("a", i - 1)} + aRow;`),
    ...further.map((i) => `  const c${i} = ${rowOf("c", i - 1)} + cRow;`),
    "  let s = i32x4.splat(0);",
    ...each((i, v) => `let x${i}${v} = i32x4.splat(0);`),
    "  if (mode != 0) {",
    ...each((i, v) => `x${i}${v} = ${load}(${rowOf("c", i)}${at(v)});`),
    "    if (mode == 2) {",
    ...negate,
    "    }",
    "  }",
    ...loop(tier, step(tier, rows, vectors, load)),
    "  if (mode == 2) {",
    ...negate,
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
      `    const last = shape == 2 ? min(max(k - m, 0) + i + ${r}, k) : k;`,
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

/**
 * Cuts the columns into panels, widest first, and few rows alone into wider pieces. Those tiles have two calls so
 * that each stays a function of its own: inside these loops V8 before 12 would unroll it and run out of registers.
 * The last columns share a panel with finished ones where n allows.
 */
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
    ...few.flatMap(({ rows, columns }) => {
      const tile = `tile${tier.letter}${rows}x${columns}`;
      const place = "a, aRow, aInner, b + (<usize>j << 2), bRow, c + (<usize>j << 2), cRow, mode";
      return [
        `  if (m == ${rows}) {`,
        `    for (; n - j >= ${columns}; j += ${columns}) {`,
        `      ${tile}(k, ${place});`,
        "    }",
        "  }",
      ];
    }),
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
    return lines([
      ...tiles,
      ...few
        .filter((f) => !t.panels.some((p) => p.columns === f.columns))
        .map((f) => tile(t, f.rows, f.columns)),
      ...t.panels.map((p) => panel(t, p.columns, p.rows)),
      product(t),
    ]);
  });
  return lines([header, storeTail, ...perTier, ...entries, transpose]);
}
