import { panelWidth } from "./host.ts";

/** Sizes and strides that decide how a product is cut; strides in elements. */
export interface PlanInput {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch: number;
  readonly aRow: number;
  readonly aCol: number;
  readonly bRow: number;
  readonly bCol: number;
}

/** How a product is cut: speed alone depends on it, no bit of the result does. */
export interface Plan {
  /** Rows and columns of one unit. */
  readonly rows: number;
  readonly cols: number;
  /** Steps of the inner axis at a time. */
  readonly steps: number;
  /** Whether blocks of A, whose columns are contiguous, are turned into rows first. */
  readonly packA: boolean;
  /** Whether blocks of B are copied into panels first: no, from contiguous rows, from contiguous columns. */
  readonly packB: 0 | 1 | 2;
  readonly units: number;
  readonly scratchBytes: number;
}

/** A block of B this deep and one panel wide stays in the first-level cache; with few rows at a time it may be deeper. */
const deepest = 256;
const deepestOfTall = 352;

/** Rows the kernel packs of A at a time, at most. */
const packedRows = 160;

/** Below this many multiply-adds a product is not worth cutting for threads. */
const worthCutting = 2 ** 19;

/** Units that let a few threads end at about the same time. */
const enoughUnits = 8;

/**
 * Many rows times a narrow matrix, as tokens times weights: few rows a unit let threads end together at no cost, since
 * neighbours share what is packed of B, and all of B lies in the second-level cache.
 */
const tallRows = 1024;
const rowsOfTall = 96;
const narrowCols = 384;

const roundUp = (x: number, to: number): number => Math.ceil(x / to) * to;

/** Steps in pieces of equal depth, none deeper than the cache likes. */
function evenSteps(k: number, most: number): number {
  return Math.max(1, Math.ceil(k / Math.max(1, Math.ceil(k / most))));
}

/** Rows and columns of a unit: tall where there is more than one block of rows, narrower until there are enough. */
function cut(m: number, n: number, k: number, batch: number): { rows: number; cols: number; units: number } {
  const rows = m <= 256 ? Math.max(1, m) : 240;
  const count = (cols: number): number => batch * Math.ceil(m / rows) * Math.ceil(n / cols);
  let cols = n <= 128 ? Math.max(1, n) : n >= 1024 && m > 8 ? 256 : 128;
  if (m * n * k * batch >= worthCutting) {
    while (count(cols) < enoughUnits && cols > 2 * panelWidth)
      cols = roundUp(Math.ceil(cols / 2), panelWidth);
  }
  return { rows, cols, units: count(cols) };
}

/** The same for a tall product. */
function cutTall(m: number, n: number, batch: number): { rows: number; cols: number; units: number } {
  return { rows: rowsOfTall, cols: n, units: batch * Math.ceil(m / rowsOfTall) };
}

/** How to cut a product of strided operands, of which B has contiguous rows or columns. */
export function planProduct({ m, n, k, batch, aRow, aCol, bRow, bCol }: PlanInput): Plan {
  const isTall = m >= tallRows && n > 0 && n <= narrowCols && aCol === 1;
  const steps = evenSteps(k, isTall ? deepestOfTall : deepest);
  const { rows, cols, units } = isTall ? cutTall(m, n, batch) : cut(m, n, k, batch);
  // Far apart, rows of B fall into the same few cache sets and a page each: copied once, they are read in order.
  const packB = bCol !== 1 ? 2 : m >= 96 && bRow >= 128 ? 1 : 0;
  const packA = aRow === 1 && aCol >= 512 && m > 1 && n >= 32;
  const panels = packB === 0 ? 0 : Math.ceil(cols / panelWidth);
  const bytesB = panels * panelWidth * steps * 4;
  const bytesA = packA ? Math.min(m, packedRows) * (steps * 4 + 64) : 0;
  return { rows, cols, steps, packA, packB, units, scratchBytes: bytesA + bytesB };
}

/** Up to this many rows it is the weights that are slow to come by: each panel is then read from end to end. */
const streamedRows = 64;

/** How to cut a product of rows with packed weights. */
export function planPacked(
  m: number,
  out: number,
  width: number,
): Pick<Plan, "rows" | "cols" | "steps" | "units"> {
  const { rows, cols, units } = cut(m, out, width, 1);
  const wide = roundUp(cols, 2 * panelWidth);
  return {
    rows,
    cols: wide,
    steps: m <= streamedRows ? Math.max(1, width) : evenSteps(width, deepest),
    units: cols === wide ? units : Math.ceil(m / rows) * Math.ceil(out / wide),
  };
}
