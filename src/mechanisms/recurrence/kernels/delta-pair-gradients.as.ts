// Gradients of the pairs of tokens of a chunk whose decay differs per key channel, and dg of such decays. Both sums over
// the pairs of one token are worked from the far end, one token's factors at a time:
//   dx_i = a_i (P_i,i-1 w_i-1 + a_i-1 (P_i,i-2 w_i-2 + ...)),   dw_j = a_j+1 (P_j+1,j x_j+1 + a_j+2 (P_j+2,j x_j+2 + ...))
import { fma } from "../../../device/wasm/kernels/simd.as";
import { Chunk } from "./delta-chunk.as";
import { Gradient } from "./delta-gradient.as";
import { at } from "./delta-job.as";

/** dx_i of the erase key and of the query, `channels` (4 or 16) from channel c on, added to their rows. */
// @ts-ignore: decorator
@inline function receive(chunk: Chunk, gradient: Gradient, i: i32, c: i32, wide: bool): void {
  const rowBytes = (<usize>chunk.stride) << 2;
  let e0 = f32x4.splat(0), e1 = e0, e2 = e0, e3 = e0;
  let q0 = e0, q1 = e0, q2 = e0, q3 = e0;
  let w = at(chunk.plainW, c);
  let a = at(chunk.factors, c) + rowBytes;
  let erase = at(gradient.pairsErase, i * chunk.span);
  let query = at(gradient.pairsQuery, i * chunk.span);
  const end = at(erase, i);
  for (; erase < end; erase += 4, query += 4, w += rowBytes, a += rowBytes) {
    const p = f32x4.neg(v128.load32_splat(erase)), r = v128.load32_splat(query);
    const w0 = v128.load(w), a0 = v128.load(a);
    e0 = f32x4.mul(a0, fma(p, w0, e0));
    q0 = f32x4.mul(a0, fma(r, w0, q0));
    if (!wide) continue;
    const w1 = v128.load(w, 16), a1 = v128.load(a, 16);
    e1 = f32x4.mul(a1, fma(p, w1, e1));
    q1 = f32x4.mul(a1, fma(r, w1, q1));
    const w2 = v128.load(w, 32), a2 = v128.load(a, 32);
    e2 = f32x4.mul(a2, fma(p, w2, e2));
    q2 = f32x4.mul(a2, fma(r, w2, q2));
    const w3 = v128.load(w, 48), a3 = v128.load(a, 48);
    e3 = f32x4.mul(a3, fma(p, w3, e3));
    q3 = f32x4.mul(a3, fma(r, w3, q3));
  }
  putReceived(chunk, gradient, i, c, e0, q0);
  if (!wide) return;
  putReceived(chunk, gradient, i, c + 4, e1, q1);
  putReceived(chunk, gradient, i, c + 8, e2, q2);
  putReceived(chunk, gradient, i, c + 12, e3, q3);
}

/** Adds what four channels received; the query has its own write key beside, which no decay separates from it. */
// @ts-ignore: decorator
@inline function putReceived(chunk: Chunk, gradient: Gradient, i: i32, c: i32, erase: v128, query: v128): void {
  const n = chunk.tokens;
  const stride = chunk.stride;
  const dErase = at(gradient.dX, i * gradient.keyRow + c);
  const dQuery = at(gradient.dX, (n + i) * gradient.keyRow + c);
  const enters = at(gradient.enters, i * stride + c);
  const key = v128.load(at(chunk.plainX, i * stride + c));
  const x = v128.load(at(chunk.plainX, (n + i) * stride + c));
  v128.store(enters, fma(x, query, fma(key, erase, v128.load(enters))));
  v128.store(dErase, f32x4.add(erase, v128.load(dErase)));
  const own = v128.load32_splat(at(gradient.pairsQuery, i * chunk.span + i));
  const sum = fma(own, v128.load(at(chunk.plainW, i * stride + c)), query);
  v128.store(dQuery, f32x4.add(sum, v128.load(dQuery)));
}

/** dw_j, added to its row. */
// @ts-ignore: decorator
@inline function sendBack(chunk: Chunk, gradient: Gradient, j: i32, c: i32, wide: bool): void {
  const n = chunk.tokens;
  const rowBytes = (<usize>chunk.stride) << 2;
  const spanBytes = (<usize>chunk.span) << 2;
  let s0 = f32x4.splat(0), s1 = s0, s2 = s0, s3 = s0;
  let i = n - 1;
  const last = (<usize>i) * rowBytes + ((<usize>c) << 2);
  let key = chunk.plainX + last;
  let x = key + (<usize>n) * rowBytes;
  let a = chunk.factors + last;
  const cell = at((<usize>i) * spanBytes, j);
  let erase = gradient.pairsErase + cell;
  let query = gradient.pairsQuery + cell;
  for (; i > j; i--, key -= rowBytes, x -= rowBytes, a -= rowBytes, erase -= spanBytes, query -= spanBytes) {
    const p = f32x4.neg(v128.load32_splat(erase)), r = v128.load32_splat(query);
    s0 = f32x4.mul(v128.load(a), fma(r, v128.load(x), fma(p, v128.load(key), s0)));
    if (!wide) continue;
    s1 = f32x4.mul(v128.load(a, 16), fma(r, v128.load(x, 16), fma(p, v128.load(key, 16), s1)));
    s2 = f32x4.mul(v128.load(a, 32), fma(r, v128.load(x, 32), fma(p, v128.load(key, 32), s2)));
    s3 = f32x4.mul(v128.load(a, 48), fma(r, v128.load(x, 48), fma(p, v128.load(key, 48), s3)));
  }
  putSent(chunk, gradient, j, c, s0);
  if (!wide) return;
  putSent(chunk, gradient, j, c + 4, s1);
  putSent(chunk, gradient, j, c + 8, s2);
  putSent(chunk, gradient, j, c + 12, s3);
}

// @ts-ignore: decorator
@inline function putSent(chunk: Chunk, gradient: Gradient, j: i32, c: i32, sum: v128): void {
  const stride = chunk.stride;
  const dWrite = at(gradient.dW, j * gradient.keyRow + c);
  const enters = at(gradient.enters, j * stride + c);
  const w = v128.load(at(chunk.plainW, j * stride + c));
  v128.store(enters, f32x4.sub(v128.load(enters), f32x4.mul(w, sum)));
  const own = v128.load32_splat(at(gradient.pairsQuery, j * chunk.span + j));
  const all = fma(own, v128.load(at(chunk.plainX, (chunk.tokens + j) * stride + c)), sum);
  v128.store(dWrite, f32x4.add(all, v128.load(dWrite)));
}

/** The product of two rows, added to what stands there where `add`. */
// @ts-ignore: decorator
@inline function meet(a: usize, b: usize, stride: i32, to: usize, add: bool): void {
  for (let c = 0; c < stride; c += 4) {
    const sum = add ? v128.load(at(to, c)) : f32x4.splat(0);
    v128.store(at(to, c), fma(v128.load(at(a, c)), v128.load(at(b, c)), sum));
  }
}

// @ts-ignore: decorator
@inline function multiplyRow(to: usize, by: usize, stride: i32): void {
  for (let c = 0; c < stride; c += 4) v128.store(at(to, c), f32x4.mul(v128.load(at(to, c)), v128.load(at(by, c))));
}

/** Meets the rows with the state's gradients, then decays these as forward decayed the rows. */
function decayStateProducts(chunk: Chunk, gradient: Gradient): void {
  const n = chunk.tokens;
  const stride = chunk.stride;
  for (let i = 0; i < n; i++) {
    const dErase = at(gradient.dX, i * gradient.keyRow);
    const dQuery = at(gradient.dX, (n + i) * gradient.keyRow);
    const dWrite = at(gradient.dW, i * gradient.keyRow);
    const enters = at(gradient.enters, i * stride);
    meet(at(chunk.x, i * stride), dErase, stride, enters, false);
    meet(at(chunk.x, (n + i) * stride), dQuery, stride, enters, true);
    meet(at(chunk.w, i * stride), dWrite, stride, at(gradient.leaves, i * stride), false);
    multiplyRow(dErase, at(chunk.intoRows, i * stride), stride);
    multiplyRow(dQuery, at(chunk.intoRows, i * stride), stride);
    multiplyRow(dWrite, at(chunk.leaveRows, i * stride), stride);
  }
}

/**
 * dg from what crosses each token: reads behind it of the entering state, writes before it, what passes through, and the
 * pairs: all that end behind it less those that begin there too.
 */
function gateChannels(chunk: Chunk, gradient: Gradient): void {
  const n = chunk.tokens;
  const stride = chunk.stride;
  for (let c = 0; c < stride; c += 4) {
    let sum = f32x4.splat(0);
    for (let i = n - 1; i >= 0; i--) {
      sum = f32x4.add(sum, v128.load(at(gradient.enters, i * stride + c)));
      v128.store(at(gradient.dG, i * stride + c), sum);
    }
    sum = v128.load(at(gradient.boundary, c));
    for (let i = 0; i < n; i++) {
      const dG = at(gradient.dG, i * stride + c);
      v128.store(dG, f32x4.add(v128.load(dG), sum));
      sum = f32x4.add(sum, v128.load(at(gradient.leaves, i * stride + c)));
    }
  }
}

/** Adds the pairs to dX and dW, which hold the state's part, and makes dG. */
export function pairGradients(chunk: Chunk, gradient: Gradient, gate: bool): void {
  const n = chunk.tokens;
  const stride = chunk.stride;
  decayStateProducts(chunk, gradient);
  for (let i = 0; i < n; i++) {
    let c = 0;
    for (; c + 16 <= stride; c += 16) {
      receive(chunk, gradient, i, c, true);
      sendBack(chunk, gradient, i, c, true);
    }
    for (; c < stride; c += 4) {
      receive(chunk, gradient, i, c, false);
      sendBack(chunk, gradient, i, c, false);
    }
  }
  if (gate) gateChannels(chunk, gradient);
}
