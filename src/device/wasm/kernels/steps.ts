/**
 * Elementary functions as lists of statements, for generators that run several vectors side by side: one vector after
 * another leaves the processor waiting for the long chains of exp and log, four side by side run a quarter faster.
 *
 * In a statement `$` stands for the vector's number, so `x$` is the argument of each.
 */

/** Constants that fill four lanes of a table in memory: a load is cheaper than a literal that V8 rebuilds. */
export class ConstantTable {
  readonly #values: string[] = [];

  /** The expression that loads a constant. */
  load(value: number | "Infinity" | "-0.0"): string {
    const text = `${value}`;
    const at = this.#values.indexOf(text);
    if (at < 0) this.#values.push(text);
    return `v128.load(CONSTANTS, ${16 * (at < 0 ? this.#values.length - 1 : at)})`;
  }

  /** The table's definition. */
  text(): string {
    const lines = this.#values.map((value) => `  ${[value, value, value, value].join(", ")},`);
    return `// prettier-ignore\nconst CONSTANTS = memory.data<f32>([\n${lines.join("\n")}\n], 16);\n`;
  }
}

/** Statements for so many vectors, each statement for all of them before the next one. */
export function interleave(steps: readonly string[], vectors: readonly number[], indent: string): string {
  return steps.flatMap((step) => vectors.map((at) => `${indent}${step.replaceAll("$", `${at}`)}`)).join("\n");
}

const logOfLargest = 88.72283;
const logOfSmallest = -87.33654;
const magic = 12582912;
const ln2High = 0.693359375;
const ln2Low = -0.00021219444;
const polynomial = [0.001381454, 0.0083687454, 0.041668389, 0.16666521, 0.49999994];

/** p(r) with exp(r) = 1 + r + r² p(r). */
function expPolynomial(table: ConstantTable): string[] {
  const [first, ...rest] = polynomial;
  const steps = rest.map(
    (value, i) => `p$ = fma(${i === 0 ? table.load(first!) : "p$"}, r$, ${table.load(value)});`,
  );
  return [`let ${steps[0]}`, ...steps.slice(1)];
}

/** `e$` = exp(x) for −87.3 <= x <= 88.7 or NaN, as exp4 of math.as.ts has it. */
export function expSteps(table: ConstantTable, x: string): string[] {
  return [
    `const s$ = fma(${x}, ${table.load(Math.LOG2E)}, ${table.load(magic)});`,
    `const n$ = f32x4.sub(s$, ${table.load(magic)});`,
    `let r$ = fma(n$, ${table.load(-ln2High)}, ${x});`,
    `r$ = fma(n$, ${table.load(-ln2Low)}, r$);`,
    ...expPolynomial(table),
    "p$ = fma(p$, f32x4.mul(r$, r$), r$);",
    `p$ = f32x4.add(p$, ${table.load(1)});`,
    "const e$ = i32x4.add(p$, i32x4.shl(s$, 23));",
  ];
}

/**
 * `e$` = exp(−x) for −88.7 <= x <= 87.3 or NaN, as expNegative4 of sigmoid.as.ts has it. Where a multiply-add rounds
 * once, ln 2 is one number: its error is 2e-9 for each n, 3e-8 of the result at |x| = 10 and 2e-7 at 87.
 */
export function expNegativeSteps(table: ConstantTable, x: string): string[] {
  const twice = `fma(n$, ${table.load(ln2Low)}, fma(n$, ${table.load(ln2High)}, ${x}))`;
  const coefficients = [...polynomial.map((value, i) => (i % 2 === 0 ? value : -value)), -1, 1];
  return [
    `const s$ = fma(${x}, ${table.load(-Math.LOG2E)}, ${table.load(magic)});`,
    `const n$ = f32x4.sub(s$, ${table.load(magic)});`,
    `const r$ = TIER > 0 ? fma(n$, ${table.load(Math.LN2)}, ${x}) : ${twice};`,
    ...hornerSteps(table, "p$", "r$", coefficients),
    "const e$ = i32x4.add(p$, i32x4.shl(s$, 23));",
  ];
}

/** Sigmoids are 0 or 1 to the last bit beyond. */
export const sigmoidEnd = 87;

/** 1 / (1 + e$). */
export function sigmoidOf(table: ConstantTable): string {
  return `f32x4.div(${table.load(1)}, f32x4.add(e$, ${table.load(1)}))`;
}

/** `b$`, x where its sigmoid still moves. */
export function boundedSteps(table: ConstantTable): string[] {
  return [`const b$ = f32x4.pmax(f32x4.pmin(x$, ${table.load(sigmoidEnd)}), ${table.load(-sigmoidEnd)});`];
}

/** `name` = 1 / (1 + exp(−x)), with `b$` and `e$` on the way. */
export function sigmoidSteps(table: ConstantTable, name: string): string[] {
  return [...boundedSteps(table), ...expNegativeSteps(table, "b$"), `const ${name} = ${sigmoidOf(table)};`];
}

/** `y$` = exp(x) for any x: 0 below −87.33, and above 88.72 the largest finite number, or Infinity where asked. */
export function fullExpSteps(table: ConstantTable, x: string, overflow: "stays" | "Infinity"): string[] {
  const low = table.load(logOfSmallest);
  const high = table.load(logOfLargest);
  const steps = [
    `const c$ = f32x4.pmax(f32x4.pmin(${x}, ${high}), ${low});`,
    ...expSteps(table, "c$"),
    `let y$ = v128.andnot(e$, f32x4.lt(${x}, ${low}));`,
  ];
  if (overflow === "stays") return steps;
  return [...steps, `y$ = f32x4.add(y$, v128.and(${table.load("Infinity")}, f32x4.gt(${x}, ${high})));`];
}

/** `e$` = exp(x) − 1, −1 below −17.5, relatively accurate near 0. */
export function expm1Steps(table: ConstantTable, x: string): string[] {
  const one = table.load(1);
  return [
    `const c$ = f32x4.pmax(f32x4.pmin(${x}, ${table.load(88.3762)}), ${table.load(-17.5)});`,
    `const s$ = fma(c$, ${table.load(Math.LOG2E)}, ${table.load(magic)});`,
    `const n$ = f32x4.sub(s$, ${table.load(magic)});`,
    `let r$ = fma(n$, ${table.load(-ln2High)}, c$);`,
    `r$ = fma(n$, ${table.load(-ln2Low)}, r$);`,
    ...expPolynomial(table),
    "p$ = fma(p$, f32x4.mul(r$, r$), r$);",
    `const w$ = i32x4.add(${one}, i32x4.shl(s$, 23));`,
    `const e$ = fma(p$, w$, f32x4.sub(w$, ${one}));`,
  ];
}

/** log1p(u) = u + u² q(u) on [0, 1], q of degree 8 fitted for the relative error of the whole (5e-9). */
const log1pPolynomial = [
  -0.003244024131375575, 0.019851457643383377, -0.056959525383262585, 0.1060365398288515,
  -0.15305592037692206, 0.19675939071739124, -0.24954133619621915, 0.3332996241306695, -0.49999902422642656,
];

/** log(m) = f − f²/2 + f³ p(f), f = m − 1, m in [√½, √2): relative error 6e-9. */
const logPolynomial = [
  -0.0763449775981263, 0.12761577537028576, -0.13160182161348133, 0.14201757916718138, -0.16623357359750998,
  0.20001226880231315, -0.25000821033939574, 0.3333333170766321,
];

/** Horner's rule: `name` = Σ coefficients, the highest first. */
export function hornerSteps(
  table: ConstantTable,
  name: string,
  x: string,
  coefficients: readonly number[],
): string[] {
  const [first, second, ...rest] = coefficients as readonly [number, number, ...number[]];
  return [
    `let ${name} = fma(${table.load(first)}, ${x}, ${table.load(second)});`,
    ...rest.map((value) => `${name} = fma(${name}, ${x}, ${table.load(value)});`),
  ];
}

/** `l$` = log(1 + u) for 0 <= u <= 1 or NaN. */
export function log1pSteps(table: ConstantTable, u: string): string[] {
  return [
    ...hornerSteps(table, "q$", u, log1pPolynomial),
    `const l$ = fma(f32x4.mul(${u}, ${u}), q$, ${u});`,
  ];
}

/** `y$` = log(x) for normal positive x; `bad$` marks the lanes of other arguments. */
export function logSteps(table: ConstantTable, x: string): string[] {
  const smallest = table.load(1.1754944e-38);
  return [
    `const m$ = f32x4.pmin(f32x4.pmax(${x}, ${smallest}), ${table.load(3.4028235e38)});`,
    `const bad$ = f32x4.ne(m$, ${x});`,
    `const i$ = i32x4.shr_s(i32x4.sub(m$, ${table.load(0.70710677)}), 23);`,
    `const f$ = f32x4.sub(i32x4.sub(m$, i32x4.shl(i$, 23)), ${table.load(1)});`,
    "const n$ = f32x4.convert_i32x4_s(i$);",
    ...hornerSteps(table, "p$", "f$", logPolynomial),
    `p$ = fma(f32x4.mul(f32x4.mul(f$, f$), f$), p$, f32x4.mul(n$, ${table.load(ln2Low)}));`,
    `p$ = f32x4.add(fma(f32x4.mul(f$, f$), ${table.load(-0.5)}, p$), f$);`,
    `let y$ = fma(n$, ${table.load(ln2High)}, p$);`,
  ];
}

/** x = n π/2 + r: π/2 in three parts, whose products with n are exact up to n = 2^13, taken away in turn. */
const halfPi = [1.5703125, 0.00048375129699707031, 7.549789954891882e-8];
/** sin(r) = r + r³ p(r²) and cos(r) = p(r²) for |r| <= π/4 (S. Moshier's Cephes has the coefficients). */
const sinPolynomial = [-0.00019515296, 0.0083321609, -0.16666655];
const cosPolynomial = [0.000024433157, -0.0013887316, 0.041666646, -0.5, 1];

/**
 * `y$` = sin(x), or sin(x + π/2) = cos(x) with a quarter of 1, or −sin(x) with one of 2: within 2 ulp of 1 for
 * |x| <= 8,192; NaN at the infinities.
 */
export function sinSteps(table: ConstantTable, x: string, quarter: 0 | 1 | 2): string[] {
  // The low bits of s$ are n; what is added to the magic number turns on by quarters.
  const turned = table.load(magic + quarter);
  return [
    `const s$ = f32x4.add(f32x4.mul(${x}, ${table.load(2 / Math.PI)}), ${turned});`,
    `const n$ = f32x4.sub(s$, ${turned});`,
    `let r$ = fma(n$, ${table.load(-halfPi[0]!)}, ${x});`,
    ...halfPi.slice(1).map((part) => `r$ = fma(n$, ${table.load(-part)}, r$);`),
    "const q$ = f32x4.mul(r$, r$);",
    ...hornerSteps(table, "c$", "q$", cosPolynomial),
    ...hornerSteps(table, "p$", "q$", sinPolynomial),
    "p$ = fma(f32x4.mul(p$, q$), r$, r$);",
    // All bits of a lane as the lowest of n is, then the second lowest where the sign stands.
    "p$ = v128.xor(p$, v128.and(v128.xor(p$, c$), i32x4.shr_s(i32x4.shl(s$, 31), 31)));",
    `const y$ = v128.xor(p$, v128.and(i32x4.shl(s$, 30), ${table.load("-0.0")}));`,
  ];
}
