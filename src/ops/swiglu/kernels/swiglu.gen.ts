/** Writes the loops of silu(gate)·up: the value that `silu` has, and one sigmoid for both gradients. */
import {
  ConstantTable,
  expNegativeSteps,
  interleave,
  sigmoidEnd,
  sigmoidOf,
} from "../../../device/wasm/kernels/steps.ts";
import { activationKernels } from "../../activation/kernels/functions.ts";

const header = `// Written by swiglu.gen.ts.
import { fma, intAt, pointerAt } from "../../../../device/wasm/kernels/simd.as";
import { loadLanes, storeLanes } from "../../../../device/wasm/kernels/lanes.as";
`;

const vectors = [0, 16, 32, 48];

/** `g$` and `h$`, the slopes by x and by u of dy, from x, u and dy. */
function slopes(table: ConstantTable): string[] {
  return [
    `const a$ = f32x4.pmax(x$, ${table.load(-sigmoidEnd)});`,
    `const b$ = f32x4.pmin(a$, ${table.load(sigmoidEnd)});`,
    ...expNegativeSteps(table, "b$"),
    `const d$ = ${sigmoidOf(table)};`,
    "const t$ = f32x4.mul(dy$, d$);",
    "const h$ = f32x4.mul(t$, a$);",
    `const g$ = f32x4.mul(f32x4.mul(t$, u$), fma(b$, f32x4.mul(e$, d$), ${table.load(1)}));`,
  ];
}

function forward(table: ConstantTable): string {
  const steps = activationKernels.silu.value(table);
  return `
function valueOf(x0: v128, u0: v128): v128 {
${interleave(steps, [0], "  ")}
  return f32x4.mul(y0, u0);
}

// args: gate, up, y, n. One unit is 4,096 elements.
export function swiglu_all_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const skip = (<usize>begin) << 14;
  let x = pointerAt(args, 0) + skip, u = pointerAt(args, 1) + skip, y = pointerAt(args, 2) + skip;
  let left = min(end << 12, intAt(args, 3)) - (begin << 12);
  for (; left >= 16; left -= 16) {
${interleave(["const x$ = v128.load(x, $);", ...steps, "v128.store(y, f32x4.mul(y$, v128.load(u, $)), $);"], vectors, "    ")}
    x += 64;
    u += 64;
    y += 64;
  }
  for (; left >= 4; left -= 4) {
    v128.store(y, valueOf(v128.load(x), v128.load(u)));
    x += 16;
    u += 16;
    y += 16;
  }
  if (left > 0) storeLanes(y, valueOf(loadLanes(x, left), loadLanes(u, left)), left);
}
`;
}

function backward(table: ConstantTable): string {
  const steps = slopes(table);
  const loads = [
    "const x$ = v128.load(x, $);",
    "const u$ = v128.load(u, $);",
    "const dy$ = v128.load(dy, $);",
  ];
  return `
// The gradients of one vector at two addresses.
function putSlopes(x0: v128, u0: v128, dy0: v128, dx: usize, du: usize, lanes: i32): void {
${interleave(steps, [0], "  ")}
  if (lanes == 4) {
    v128.store(dx, g0);
    v128.store(du, h0);
  } else {
    storeLanes(dx, g0, lanes);
    storeLanes(du, h0, lanes);
  }
}

// args: gate, up, dy, dGate, dUp, n. One unit is 4,096 elements.
export function swiglu_all_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const skip = (<usize>begin) << 14;
  let x = pointerAt(args, 0) + skip, u = pointerAt(args, 1) + skip, dy = pointerAt(args, 2) + skip;
  let dx = pointerAt(args, 3) + skip, du = pointerAt(args, 4) + skip;
  let left = min(end << 12, intAt(args, 5)) - (begin << 12);
  for (; left >= 8; left -= 8) {
${interleave([...loads, ...steps, "v128.store(dx, g$, $);", "v128.store(du, h$, $);"], vectors.slice(0, 2), "    ")}
    x += 32;
    u += 32;
    dy += 32;
    dx += 32;
    du += 32;
  }
  for (; left >= 4; left -= 4) {
    putSlopes(v128.load(x), v128.load(u), v128.load(dy), dx, du, 4);
    x += 16;
    u += 16;
    dy += 16;
    dx += 16;
    du += 16;
  }
  if (left > 0) putSlopes(loadLanes(x, left), loadLanes(u, left), loadLanes(dy, left), dx, du, left);
}
`;
}

/** The text of generated/swiglu.as.ts. */
export function generate(): string {
  const table = new ConstantTable();
  const functions = forward(table) + backward(table);
  return `${header}\n${table.text()}${functions}`;
}
