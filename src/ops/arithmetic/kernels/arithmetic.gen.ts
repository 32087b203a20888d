/** Writes the loops of the four arithmetic ops: dense operands, and operands in any strides. */

const header = `// Written by arithmetic.gen.ts.
import { intAt, pointerAt } from "../../../../device/wasm/kernels/simd.as";
import { beginWalk, nextRow } from "../walk.as";
`;

const ops = { add: "add", subtract: "sub", multiply: "mul", divide: "div" } as const;

const scalars = { add: "+", subtract: "-", multiply: "*", divide: "/" } as const;

/** One run of elements; an operand's step is 4 bytes, 0 where it is one number for the whole run, or any other. */
function run(name: keyof typeof ops): string {
  const vector = (a: string, b: string): string => `f32x4.${ops[name]}(${a}, ${b})`;
  const loop = (a: (at: number) => string, b: (at: number) => string, step: string): string => `
    for (; count >= 16; count -= 16) {
${[0, 16, 32, 48].map((at) => `      v128.store(y, ${vector(a(at), b(at))}, ${at});`).join("\n")}
      ${step.replaceAll("16", "64")}
    }
    for (; count >= 4; count -= 4) {
      v128.store(y, ${vector(a(0), b(0))});
      ${step}
    }`;
  const load = (pointer: string) => (at: number) => `v128.load(${pointer}, ${at})`;
  return `
function ${name}Run(a: usize, b: usize, y: usize, count: i32, aStep: usize, bStep: usize): void {
  if (aStep == 4 && bStep == 4) {${loop(load("a"), load("b"), "a += 16; b += 16; y += 16;")}
  } else if (aStep == 4 && bStep == 0) {
    const wide = v128.load32_splat(b);${loop(load("a"), () => "wide", "a += 16; y += 16;")}
  } else if (aStep == 0 && bStep == 4) {
    const wide = v128.load32_splat(a);${loop(() => "wide", load("b"), "b += 16; y += 16;")}
  }
  for (; count > 0; count--) {
    store<f32>(y, load<f32>(a) ${scalars[name]} load<f32>(b));
    a += aStep;
    b += bStep;
    y += 4;
  }
}
`;
}

function entries(name: keyof typeof ops): string {
  return `
// args: a, b, y, n. One unit is 4,096 elements.
export function ${name}_dense_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const skip = (<usize>begin) << 14;
  const count = min(end << 12, intAt(args, 3)) - (begin << 12);
  ${name}Run(pointerAt(args, 0) + skip, pointerAt(args, 1) + skip, pointerAt(args, 2) + skip, count, 4, 4);
}

// args: a, b, y; n, 6 lengths, 6 strides of a, 6 strides of b. One unit is 4,096 elements of y, row-major.
export function ${name}_strided_forward(args: usize, begin: i32, end: i32, scratch: usize): void {
  let at = begin << 12;
  const to = min(end << 12, intAt(args, 3));
  const inner = intAt(args, 9);
  const aStep = (<usize>intAt(args, 15)) << 2, bStep = (<usize>intAt(args, 21)) << 2;
  let y = pointerAt(args, 2) + ((<usize>at) << 2);
  let column = beginWalk(args, at, scratch);
  while (at < to) {
    const run = min(inner - column, to - at);
    const a = pointerAt(scratch, 6), b = pointerAt(scratch, 7);
    ${name}Run(a + (<usize>column) * aStep, b + (<usize>column) * bStep, y, run, aStep, bStep);
    at += run;
    y += (<usize>run) << 2;
    column = 0;
    nextRow(args, scratch);
  }
}
`;
}

/** The text of generated/arithmetic.as.ts. */
export function generate(): string {
  const names = Object.keys(ops) as (keyof typeof ops)[];
  return header + names.map((name) => run(name) + entries(name)).join("");
}
