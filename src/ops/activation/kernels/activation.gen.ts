/** Writes the loops of every function of the family: four vectors side by side, what is left one at a time. */
import { ConstantTable, interleave } from "../../../device/wasm/kernels/steps.ts";
import { type ActivationKernel, activationKernels } from "./functions.ts";

const header = `// Written by activation.gen.ts.
import { fma, intAt, pointerAt } from "../../../../device/wasm/kernels/simd.as";
import { loadLanes, storeLanes } from "../../../../device/wasm/kernels/lanes.as";
import { logSpecial } from "../../../../device/wasm/kernels/log.as";
`;

const vectors = [0, 16, 32, 48];

/** Arguments that the straight line of log gets wrong are mended one vector at a time. */
const mend = (at: number | "$"): string => `y${at} = logSpecial(x${at}, y${at});`;
const mendAll = `
    if (v128.any_true(v128.or(v128.or(bad0, bad16), v128.or(bad32, bad48)))) {
${vectors.map((at) => `      ${mend(at)}`).join("\n")}
    }`;

function forward(name: string, kernel: ActivationKernel, table: ConstantTable): string {
  const steps = kernel.value(table);
  const isLog = name === "log";
  return `
function ${name}ValueOf(x0: v128): v128 {
${interleave(steps, [0], "  ")}
  ${isLog ? `if (v128.any_true(bad0)) ${mend(0)}` : ""}
  return y0;
}

// args: x, y, n. One unit is 4,096 elements.
export function activation_${name}_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const skip = (<usize>begin) << 14;
  let x = pointerAt(args, 0) + skip, y = pointerAt(args, 1) + skip;
  let left = min(end << 12, intAt(args, 2)) - (begin << 12);
  for (; left >= 16; left -= 16) {
${interleave(["const x$ = v128.load(x, $);", ...steps], vectors, "    ")}${isLog ? mendAll : ""}
${interleave(["v128.store(y, y$, $);"], vectors, "    ")}
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

function backward(name: string, kernel: ActivationKernel, table: ConstantTable): string {
  const steps = kernel.slope(table);
  return `
function ${name}SlopeOf(x0: v128, dy: v128): v128 {
${interleave(steps, [0], "  ")}
  return f32x4.mul(dy, y0);
}

// args: kept, dy, dx, n. One unit is 4,096 elements.
export function activation_${name}_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const skip = (<usize>begin) << 14;
  let x = pointerAt(args, 0) + skip, dy = pointerAt(args, 1) + skip, dx = pointerAt(args, 2) + skip;
  let left = min(end << 12, intAt(args, 3)) - (begin << 12);
  for (; left >= 16; left -= 16) {
${interleave(["const x$ = v128.load(x, $);", ...steps], vectors, "    ")}
${interleave(["v128.store(dx, f32x4.mul(v128.load(dy, $), y$), $);"], vectors, "    ")}
    x += 64;
    dy += 64;
    dx += 64;
  }
  for (; left >= 4; left -= 4) {
    v128.store(dx, ${name}SlopeOf(v128.load(x), v128.load(dy)));
    x += 16;
    dy += 16;
    dx += 16;
  }
  if (left > 0) storeLanes(dx, ${name}SlopeOf(loadLanes(x, left), loadLanes(dy, left)), left);
}
`;
}

/** The text of generated/activation.as.ts. */
export function generate(): string {
  const table = new ConstantTable();
  const functions = Object.entries(activationKernels).map(
    ([name, kernel]) => forward(name, kernel, table) + backward(name, kernel, table),
  );
  return `${header}\n${table.text()}${functions.join("")}`;
}
