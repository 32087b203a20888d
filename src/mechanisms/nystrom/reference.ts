import type { Reference, Values } from "../mechanism.ts";
import { at, row, zeroValues } from "../values.ts";

/** What Nyström attention is told beyond its inputs. */
export interface NystromOptions {
  /** Landmarks m, at most T and at most Tk; exact softmax where m = T = Tk. */
  readonly landmarks: number;
  /** Steps of the pseudo-inverse; 6 unless given. */
  readonly iterations?: number;
  /** Multiplies q·k, half of it on each side; K^-½ unless given. */
  readonly scale?: number;
}

type Matrix = readonly Float64Array[];

function product(a: Matrix, b: Matrix): Matrix {
  return a.map((line) =>
    Float64Array.from({ length: b[0]!.length }, (_, j) => line.reduce((sum, x, p) => sum + x * b[p]![j]!, 0)),
  );
}

function transposed(a: Matrix): Matrix {
  return Array.from(a[0]!, (_, j) => Float64Array.from(a, (line) => line[j]!));
}

/** softmax over the rows of a bᵀ. */
function attend(a: Matrix, b: Matrix): Matrix {
  return product(a, transposed(b)).map((line) => {
    const largest = line.reduce((x, y) => Math.max(x, y), Number.NEGATIVE_INFINITY);
    const powers = line.map((score) => Math.exp(score - largest));
    const sum = powers.reduce((x, y) => x + y, 0);
    return powers.map((power) => power / sum);
  });
}

/**
 * Means of m segments that cover the rows. Where m does not divide them the first segments are one row shorter than
 * the last, so that no row is padded or left out.
 */
function segmentMeans(rows: Matrix, m: number): Matrix {
  const short = Math.floor(rows.length / m);
  const shortCount = (short + 1) * m - rows.length;
  return Array.from({ length: m }, (_, n) => {
    const from = n * short + Math.max(0, n - shortCount);
    const segment = rows.slice(from, from + (n < shortCount ? short : short + 1));
    return Float64Array.from(
      rows[0]!,
      (_, c) => segment.reduce((sum, line) => sum + line[c]!, 0) / segment.length,
    );
  });
}

/** Z ← Z/4 (13I − AZ(15I − AZ(7I − AZ))) from Z = Aᵀ / (largest column sum of A). */
function pseudoInverse(a: Matrix, iterations: number): Matrix {
  const columns = transposed(a);
  const largest = Math.max(...columns.map((column) => column.reduce((x, y) => x + y, 0)));
  let z: Matrix = columns.map((column) => column.map((x) => x / largest));
  const minus = (c: number, x: Matrix): Matrix =>
    x.map((line, i) => line.map((value, j) => (i === j ? c : 0) - value));
  for (let step = 0; step < iterations; step++) {
    const az = product(a, z);
    const inner = minus(13, product(az, minus(15, product(az, minus(7, az)))));
    z = product(z, inner).map((line) => line.map((value) => value / 4));
  }
  return z;
}

/**
 * o = softmax(Q K̃ᵀ) · softmax(Q̃ K̃ᵀ)⁺ · softmax(Q̃ Kᵀ) V with segment means Q̃, K̃ (Nyströmformer, arXiv 2102.03902v3,
 * section 3), plus a depthwise convolution of the values over time where `convolution [H,W]`, W odd,
 * is given: every token with every other.
 *
 * `q [B,T,H,K]`, `k [B,Tk,H,K]`, `v [B,Tk,H,V]` → `output [B,T,H,V]`. The scale of the pseudo-inverse belongs to each batch
 * row and head, so that no row depends on its neighbours.
 */
export const reference = ((inputs: Readonly<Record<string, Values>>, options: NystromOptions) => {
  const { q, k, v, convolution } = inputs;
  const [B, T, H, K] = q!.shape as [number, number, number, number];
  const [Tk, , V] = v!.shape.slice(1) as [number, number, number];
  const { landmarks, iterations = 6, scale = K ** -0.5 } = options;
  const output = zeroValues([B, T, H, V]);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < H; h++) {
      const rows = (x: Values, n: number, width: number, factor: number): Matrix =>
        Array.from({ length: n }, (_, t) => row(x, width, b, t, h).map((value) => factor * value));
      const queries = rows(q!, T, K, Math.sqrt(scale));
      const keys = rows(k!, Tk, K, Math.sqrt(scale));
      const values = rows(v!, Tk, V, 1);
      const queryMeans = segmentMeans(queries, landmarks);
      const keyMeans = segmentMeans(keys, landmarks);
      const inverse = pseudoInverse(attend(queryMeans, keyMeans), iterations);
      const exact = landmarks === T && landmarks === Tk;
      const mixed = exact
        ? product(attend(queries, keys), values)
        : product(attend(queries, keyMeans), product(inverse, product(attend(queryMeans, keys), values)));
      for (let t = 0; t < T; t++) {
        const out = row(output, V, b, t, h);
        out.set(mixed[t]!);
        const width = convolution?.shape[1] ?? 0;
        for (let w = 0; w < width; w++) {
          const source = t + w - (width - 1) / 2;
          if (source < 0 || source >= Tk) continue;
          for (let c = 0; c < V; c++) out[c]! += at(convolution, h, w) * values[source]![c]!;
        }
      }
    }
  return { output };
}) satisfies (inputs: Readonly<Record<string, Values>>, options: NystromOptions) => ReturnType<Reference>;
