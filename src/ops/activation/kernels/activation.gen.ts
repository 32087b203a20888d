/** Writes the loops of every function of the family: four vectors a turn, what is left one vector at a time. */
import { activationRows } from "../rows.ts";

const header = `// Written by activation.gen.ts.
import { intAt, pointerAt } from "../../../../device/wasm/kernels/simd.as";
import { loadLanes, storeLanes } from "../../../../device/wasm/kernels/lanes.as";
import * as functions from "../functions.as";
`;

const offsets = [0, 16, 32, 48];

function forward(name: string): string {
  const f = `functions.${name}Value`;
  return `
function ${name}ValueOf(x: v128): v128 {
  return ${f}(x);
}

// args: x, y, n. One unit is 4,096 elements.
export function activation_${name}_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const skip = (<usize>begin) << 14;
  let x = pointerAt(args, 0) + skip, y = pointerAt(args, 1) + skip;
  let left = min(end << 12, intAt(args, 2)) - (begin << 12);
  for (; left >= 16; left -= 16) {
${offsets.map((at) => `    const x${at} = v128.load(x, ${at});`).join("\n")}
${offsets.map((at) => `    v128.store(y, ${f}(x${at}), ${at});`).join("\n")}
    x += 64;
    y += 64;
  }
  for (; left >= 4; left -= 4) {
    v128.store(y, ${name}ValueOf(v128.load(x)));
    x += 16;
    y += 16;
  }
  if (left > 0) storeLanes(y, ${name}ValueOf(loadLanes(x, left)), left);
}
`;
}

function backward(name: string): string {
  const f = `functions.${name}Slope`;
  return `
function ${name}SlopeOf(kept: v128, dy: v128): v128 {
  return f32x4.mul(dy, ${f}(kept));
}

// args: kept, dy, dx, n. One unit is 4,096 elements.
export function activation_${name}_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const skip = (<usize>begin) << 14;
  let kept = pointerAt(args, 0) + skip, dy = pointerAt(args, 1) + skip, dx = pointerAt(args, 2) + skip;
  let left = min(end << 12, intAt(args, 3)) - (begin << 12);
  for (; left >= 16; left -= 16) {
${offsets.map((at) => `    v128.store(dx, f32x4.mul(v128.load(dy, ${at}), ${f}(v128.load(kept, ${at}))), ${at});`).join("\n")}
    kept += 64;
    dy += 64;
    dx += 64;
  }
  for (; left >= 4; left -= 4) {
    v128.store(dx, ${name}SlopeOf(v128.load(kept), v128.load(dy)));
    kept += 16;
    dy += 16;
    dx += 16;
  }
  if (left > 0) storeLanes(dx, ${name}SlopeOf(loadLanes(kept, left), loadLanes(dy, left)), left);
}
`;
}

/** The text of generated/activation.as.ts. */
export function generate(): string {
  return (
    header +
    Object.keys(activationRows)
      .map((name) => forward(name) + backward(name))
      .join("")
  );
}
