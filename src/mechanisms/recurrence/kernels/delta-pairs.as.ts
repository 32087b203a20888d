// Products of two tokens of a chunk whose decay differs per key channel: x_i · (w_j decayed from j to i). The decayed
// key of token j runs forward through the chunk, multiplied by one token's factors after another, so no exponent of a
// longer segment is ever formed.
import { fma } from "../../../device/wasm/kernels/simd.as";
import { addLanes, at, dot4 } from "./delta-job.as";

/** The four sums of lanes of four vectors, each as addLanes does it. */
// @ts-ignore: decorator
@inline function addLanes4(a: v128, b: v128, c: v128, d: v128): v128 {
  const lowAB = i32x4.shuffle(a, b, 0, 4, 1, 5);
  const highAB = i32x4.shuffle(a, b, 2, 6, 3, 7);
  const lowCD = i32x4.shuffle(c, d, 0, 4, 1, 5);
  const highCD = i32x4.shuffle(c, d, 2, 6, 3, 7);
  const left = f32x4.add(i64x2.shuffle(lowAB, lowCD, 0, 2), i64x2.shuffle(lowAB, lowCD, 1, 3));
  const right = f32x4.add(i64x2.shuffle(highAB, highCD, 0, 2), i64x2.shuffle(highAB, highCD, 1, 3));
  return f32x4.add(left, right);
}

/** Stores the lanes of x in one column of a matrix. */
// @ts-ignore: decorator
@inline function storeColumn(to: usize, rowBytes: usize, x: v128): void {
  v128.store32_lane(to, x, 0);
  v128.store32_lane(to + rowBytes, x, 1);
  v128.store32_lane(to + (rowBytes << 1), x, 2);
  v128.store32_lane(to + 3 * rowBytes, x, 3);
}

/** Four rows of one column: `y` is the key decayed to the row before them and moves on. */
function fourRows(erase: usize, query: usize, y: usize, factors: usize, stride: i32, m: usize, n: usize, spanBytes: usize, both: bool): void {
  const row = (<usize>stride) << 2;
  let m0 = f32x4.splat(0), m1 = m0, m2 = m0, m3 = m0;
  let n0 = m0, n1 = m0, n2 = m0, n3 = m0;
  for (let c: usize = 0; c < row; c += 16) {
    let k = f32x4.mul(v128.load(y + c), v128.load(factors + c));
    m0 = fma(v128.load(erase + c), k, m0);
    if (both) n0 = fma(v128.load(query + c), k, n0);
    k = f32x4.mul(k, v128.load(factors + c + row));
    m1 = fma(v128.load(erase + c + row), k, m1);
    if (both) n1 = fma(v128.load(query + c + row), k, n1);
    k = f32x4.mul(k, v128.load(factors + c + 2 * row));
    m2 = fma(v128.load(erase + c + 2 * row), k, m2);
    if (both) n2 = fma(v128.load(query + c + 2 * row), k, n2);
    k = f32x4.mul(k, v128.load(factors + c + 3 * row));
    m3 = fma(v128.load(erase + c + 3 * row), k, m3);
    if (both) n3 = fma(v128.load(query + c + 3 * row), k, n3);
    v128.store(y + c, k);
  }
  storeColumn(m, spanBytes, addLanes4(m0, m1, m2, m3));
  if (both) storeColumn(n, spanBytes, addLanes4(n0, n1, n2, n3));
}

function oneRow(erase: usize, query: usize, y: usize, factors: usize, stride: i32, m: usize, n: usize, both: bool): void {
  const row = (<usize>stride) << 2;
  let m0 = f32x4.splat(0), n0 = m0;
  for (let c: usize = 0; c < row; c += 16) {
    const k = f32x4.mul(v128.load(y + c), v128.load(factors + c));
    m0 = fma(v128.load(erase + c), k, m0);
    if (both) n0 = fma(v128.load(query + c), k, n0);
    v128.store(y + c, k);
  }
  store<f32>(m, addLanes(m0));
  if (both) store<f32>(n, addLanes(n0));
}

/** Column after column of M (below the diagonal) and, with `both`, N (with it). `y` holds one row of floats. */
export function decayPairs(erase: usize, query: usize, write: usize, factors: usize, y: usize, tokens: i32, stride: i32, m: usize, n: usize, span: i32, both: bool): void {
  const row = (<usize>stride) << 2;
  const spanBytes = (<usize>span) << 2;
  for (let j = 0; j < tokens; j++) {
    const own = (<usize>j) * row;
    memory.copy(y, write + own, row);
    if (both) store<f32>(at(n, j * span + j), dot4(query + own, write + own, stride));
    let i = j + 1;
    for (; i + 4 <= tokens; i += 4) {
      const to = (<usize>i) * row;
      const cell = j + i * span;
      fourRows(erase + to, query + to, y, factors + to, stride, at(m, cell), at(n, cell), spanBytes, both);
    }
    for (; i < tokens; i++) {
      const to = (<usize>i) * row;
      const cell = j + i * span;
      oneRow(erase + to, query + to, y, factors + to, stride, at(m, cell), at(n, cell), both);
    }
  }
}
