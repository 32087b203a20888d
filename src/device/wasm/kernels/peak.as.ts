import { fma, pointerAt, intAt } from "./simd.as";

// The machine's own limits at this tier, for benchmarks: arithmetic from registers alone, memory copied, memory read.

// args: x (32 small floats), turns; scratch of 320 bytes. One unit is `turns` times 120 multiply-adds of four lanes (960 operations).
export function peak_fma_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const x = pointerAt(args, 0);
  const turns = intAt(args, 1);
  for (let unit = begin; unit < end; unit++) {
    if (TIER == 0) plainTurns(x, turns * 10, scratch);
    if (TIER == 1) fusedTurns(x, turns * 10, scratch);
    if (TIER == 2) pairedTurns(x, turns * 6, scratch);
  }
}

// Every product takes another accumulator as it was a turn ago, so that none is shared or hoisted.
function plainTurns(x: usize, turns: i32, out: usize): void {
  const u = v128.load(x);
  let a0 = v128.load(x), a1 = v128.load(x, 4), a2 = v128.load(x, 8), a3 = v128.load(x, 12);
  let a4 = v128.load(x, 16), a5 = v128.load(x, 20), a6 = v128.load(x, 24), a7 = v128.load(x, 28);
  let a8 = v128.load(x, 32), a9 = v128.load(x, 36), a10 = v128.load(x, 40), a11 = v128.load(x, 44);
  for (; turns > 0; turns--) {
    a11 = fma(u, a10, a11); a10 = fma(u, a9, a10); a9 = fma(u, a8, a9); a8 = fma(u, a7, a8);
    a7 = fma(u, a6, a7); a6 = fma(u, a5, a6); a5 = fma(u, a4, a5); a4 = fma(u, a3, a4);
    a3 = fma(u, a2, a3); a2 = fma(u, a1, a2); a1 = fma(u, a0, a1); a0 = fma(u, u, a0);
  }
  v128.store(out, a0); v128.store(out, a1, 16); v128.store(out, a2, 32); v128.store(out, a3, 48);
  v128.store(out, a4, 64); v128.store(out, a5, 80); v128.store(out, a6, 96); v128.store(out, a7, 112);
  v128.store(out, a8, 128); v128.store(out, a9, 144); v128.store(out, a10, 160); v128.store(out, a11, 176);
}

function fusedTurns(x: usize, turns: i32, out: usize): void {
  const u = v128.load(x), v = v128.load(x, 16);
  let a0 = v128.load(x), a1 = v128.load(x, 4), a2 = v128.load(x, 8), a3 = v128.load(x, 12);
  let a4 = v128.load(x, 16), a5 = v128.load(x, 20), a6 = v128.load(x, 24), a7 = v128.load(x, 28);
  let a8 = v128.load(x, 32), a9 = v128.load(x, 36), a10 = v128.load(x, 40), a11 = v128.load(x, 44);
  for (; turns > 0; turns--) {
    a0 = fma(u, v, a0); a1 = fma(u, v, a1); a2 = fma(u, v, a2); a3 = fma(u, v, a3);
    a4 = fma(u, v, a4); a5 = fma(u, v, a5); a6 = fma(u, v, a6); a7 = fma(u, v, a7);
    a8 = fma(u, v, a8); a9 = fma(u, v, a9); a10 = fma(u, v, a10); a11 = fma(u, v, a11);
  }
  v128.store(out, a0); v128.store(out, a1, 16); v128.store(out, a2, 32); v128.store(out, a3, 48);
  v128.store(out, a4, 64); v128.store(out, a5, 80); v128.store(out, a6, 96); v128.store(out, a7, 112);
  v128.store(out, a8, 128); v128.store(out, a9, 144); v128.store(out, a10, 160); v128.store(out, a11, 176);
}

// Neighbouring loads and stores let the engine join each pair into one 256-bit register.
function pairedTurns(x: usize, turns: i32, out: usize): void {
  const u0 = v128.load(x), u1 = v128.load(x, 16), v0 = v128.load(x, 32), v1 = v128.load(x, 48);
  let a0 = v128.load(x, 0), b0 = v128.load(x, 16), a1 = v128.load(x, 4), b1 = v128.load(x, 20);
  let a2 = v128.load(x, 8), b2 = v128.load(x, 24), a3 = v128.load(x, 12), b3 = v128.load(x, 28);
  let a4 = v128.load(x, 32), b4 = v128.load(x, 48), a5 = v128.load(x, 36), b5 = v128.load(x, 52);
  let a6 = v128.load(x, 40), b6 = v128.load(x, 56), a7 = v128.load(x, 44), b7 = v128.load(x, 60);
  let a8 = v128.load(x, 64), b8 = v128.load(x, 80), a9 = v128.load(x, 68), b9 = v128.load(x, 84);
  for (; turns > 0; turns--) {
    a0 = fma(u0, v0, a0); b0 = fma(u1, v1, b0); a1 = fma(u0, v0, a1); b1 = fma(u1, v1, b1);
    a2 = fma(u0, v0, a2); b2 = fma(u1, v1, b2); a3 = fma(u0, v0, a3); b3 = fma(u1, v1, b3);
    a4 = fma(u0, v0, a4); b4 = fma(u1, v1, b4); a5 = fma(u0, v0, a5); b5 = fma(u1, v1, b5);
    a6 = fma(u0, v0, a6); b6 = fma(u1, v1, b6); a7 = fma(u0, v0, a7); b7 = fma(u1, v1, b7);
    a8 = fma(u0, v0, a8); b8 = fma(u1, v1, b8); a9 = fma(u0, v0, a9); b9 = fma(u1, v1, b9);
  }
  v128.store(out, a0); v128.store(out, b0, 16); v128.store(out, a1, 32); v128.store(out, b1, 48);
  v128.store(out, a2, 64); v128.store(out, b2, 80); v128.store(out, a3, 96); v128.store(out, b3, 112);
  v128.store(out, a4, 128); v128.store(out, b4, 144); v128.store(out, a5, 160); v128.store(out, b5, 176);
  v128.store(out, a6, 192); v128.store(out, b6, 208); v128.store(out, a7, 224); v128.store(out, b7, 240);
  v128.store(out, a8, 256); v128.store(out, b8, 272); v128.store(out, a9, 288); v128.store(out, b9, 304);
}

// args: y, x. One unit copies 16,384 floats.
export function peak_copy_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const from = <usize>begin << 16, bytes = (<usize>(end - begin)) << 16;
  memory.copy(pointerAt(args, 0) + from, pointerAt(args, 1) + from, bytes);
}

// args: x. One unit reads 16,384 floats.
export function peak_read_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  let x = pointerAt(args, 0) + ((<usize>begin) << 16);
  const last = pointerAt(args, 0) + ((<usize>end) << 16);
  let a = i32x4.splat(0), b = i32x4.splat(0), c = i32x4.splat(0), d = i32x4.splat(0);
  for (; x < last; x += 128) {
    a = v128.or(a, v128.load(x)); b = v128.or(b, v128.load(x, 16));
    c = v128.or(c, v128.load(x, 32)); d = v128.or(d, v128.load(x, 48));
    a = v128.or(a, v128.load(x, 64)); b = v128.or(b, v128.load(x, 80));
    c = v128.or(c, v128.load(x, 96)); d = v128.or(d, v128.load(x, 112));
  }
  v128.store(scratch, v128.or(v128.or(a, b), v128.or(c, d)));
}
