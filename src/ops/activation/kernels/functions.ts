/** Value and slope of each function as statements: from `x$` to `y$`, a slope from the kept tensor, x or y. */
import {
  boundedSteps,
  type ConstantTable,
  expm1Steps,
  expNegativeSteps,
  expSteps,
  fullExpSteps,
  hornerSteps,
  log1pSteps,
  logSteps,
  sigmoidEnd,
  sigmoidOf,
  sigmoidSteps,
  sinSteps,
} from "../../../device/wasm/kernels/steps.ts";
import type { ActivationName } from "../rows.ts";

type Steps = (table: ConstantTable) => string[];

/** What the kernels of one function are made of. */
export interface ActivationKernel {
  readonly value: Steps;
  readonly slope: Steps;
}

/** `t$` = log1p(exp(−|x|)). */
const softplusRest: Steps = (table) => [
  `const b$ = f32x4.pmin(f32x4.abs(x$), ${table.load(sigmoidEnd)});`,
  ...expNegativeSteps(table, "b$"),
  ...log1pSteps(table, "e$"),
];

const sigmoid: Steps = (table) => sigmoidSteps(table, "y$");

/** Φ(x) − ½ = x P(x²) / Q(x²) to |x| = 5.5, absolute error 7e-9 before rounding. */
const top = [
  2.27493508475618e-8, 6.352102445816854e-6, 0.00016882523777894676, 0.004677257966250181,
  0.03385261818766594, 0.398942232131958,
];
const bottom = [
  1.1975023426202824e-6, 7.364730117842555e-5, 0.0018844424048438668, 0.028645852580666542,
  0.25152185559272766, 1,
];
const gaussianEnd = 5.5;

/** `d$` = Φ(b$). */
const gaussian: Steps = (table) => [
  "const q$ = f32x4.mul(b$, b$);",
  ...hornerSteps(table, "t$", "q$", top),
  ...hornerSteps(table, "u$", "q$", bottom),
  `const d$ = f32x4.pmax(f32x4.add(f32x4.div(f32x4.mul(b$, t$), u$), ${table.load(0.5)}), ${table.load(0)});`,
];

const between = (table: ConstantTable, end: number, from = "x$"): string =>
  `const b$ = f32x4.pmin(f32x4.pmax(${from}, ${table.load(-end)}), ${table.load(end)});`;

/** 2 √(2/π), and with 0.044715: the tanh form of gelu is x · sigmoid of 2 √(2/π) (x + 0.044715 x³). */
const twice = 1.5957691216057308;
const cubic = 0.07135481627260025;
/** Beyond, that sigmoid is 0 or 1 to the last bit. */
const tanhEnd = 7;

/** `e$` = exp of minus twice the argument of tanh at b$. */
const tanhForm: Steps = (table) => [
  "const q$ = f32x4.mul(b$, b$);",
  `const u$ = f32x4.mul(b$, fma(q$, ${table.load(cubic)}, ${table.load(twice)}));`,
  ...expNegativeSteps(table, "u$"),
];

const positive = "f32x4.gt(x$, ";

/** The functions whose arguments must be clamped below are x·(something that vanishes), which is 0 at −Infinity. */
export const activationKernels: Readonly<Record<ActivationName, ActivationKernel>> = {
  relu: {
    value: (table) => [`const y$ = f32x4.pmax(x$, ${table.load(0)});`],
    slope: (table) => [`const y$ = v128.and(${table.load(1)}, ${positive}${table.load(0)}));`],
  },
  gelu: {
    value: (table) => [
      `const a$ = f32x4.pmax(x$, ${table.load(-gaussianEnd)});`,
      between(table, gaussianEnd),
      ...gaussian(table),
      "const y$ = f32x4.mul(a$, d$);",
    ],
    slope: (table) => [
      between(table, gaussianEnd),
      ...gaussian(table),
      `const h$ = f32x4.mul(q$, ${table.load(0.5)});`,
      ...expNegativeSteps(table, "h$"),
      `const y$ = fma(f32x4.mul(b$, ${table.load(0.3989422804014327)}), e$, d$);`,
    ],
  },
  geluTanh: {
    value: (table) => [
      `const a$ = f32x4.pmax(x$, ${table.load(-tanhEnd)});`,
      between(table, tanhEnd),
      ...tanhForm(table),
      `const y$ = f32x4.div(a$, f32x4.add(e$, ${table.load(1)}));`,
    ],
    slope: (table) => [
      between(table, tanhEnd),
      ...tanhForm(table),
      `const d$ = ${sigmoidOf(table)};`,
      `const i$ = f32x4.mul(b$, fma(q$, ${table.load(3 * cubic)}, ${table.load(twice)}));`,
      `const y$ = f32x4.mul(d$, fma(f32x4.mul(e$, d$), i$, ${table.load(1)}));`,
    ],
  },
  silu: {
    value: (table) => [
      `const a$ = f32x4.pmax(x$, ${table.load(-sigmoidEnd)});`,
      `const b$ = f32x4.pmin(a$, ${table.load(sigmoidEnd)});`,
      ...expNegativeSteps(table, "b$"),
      `const y$ = f32x4.div(a$, f32x4.add(e$, ${table.load(1)}));`,
    ],
    slope: (table) => [
      ...sigmoidSteps(table, "d$"),
      `const y$ = f32x4.mul(d$, fma(b$, f32x4.mul(e$, d$), ${table.load(1)}));`,
    ],
  },
  sigmoid: {
    value: sigmoid,
    slope: (table) => [`const y$ = f32x4.mul(x$, f32x4.sub(${table.load(1)}, x$));`],
  },
  softplus: {
    value: (table) => [...softplusRest(table), `const y$ = f32x4.add(f32x4.pmax(x$, ${table.load(0)}), l$);`],
    slope: sigmoid,
  },
  tanh: {
    value: (table) => [
      "const v$ = f32x4.add(x$, x$);",
      ...expm1Steps(table, "v$"),
      `const y$ = f32x4.div(e$, f32x4.add(e$, ${table.load(2)}));`,
    ],
    slope: (table) => [`const y$ = f32x4.sub(${table.load(1)}, f32x4.mul(x$, x$));`],
  },
  exp: {
    value: (table) => fullExpSteps(table, "x$", "Infinity"),
    slope: () => ["const y$ = x$;"],
  },
  log: {
    value: (table) => logSteps(table, "x$"),
    slope: (table) => [`const y$ = f32x4.div(${table.load(1)}, x$);`],
  },
  sqrt: {
    value: () => ["const y$ = f32x4.sqrt(x$);"],
    slope: (table) => [`const y$ = f32x4.div(${table.load(0.5)}, x$);`],
  },
  square: {
    value: () => ["const y$ = f32x4.mul(x$, x$);"],
    slope: () => ["const y$ = f32x4.add(x$, x$);"],
  },
  logSigmoid: {
    value: (table) => [...softplusRest(table), `const y$ = f32x4.sub(f32x4.pmin(x$, ${table.load(0)}), l$);`],
    slope: (table) => [...boundedSteps(table), ...expSteps(table, "b$"), `const y$ = ${sigmoidOf(table)};`],
  },
  eluPlusOne: {
    value: (table) => [
      `const c$ = f32x4.pmax(x$, ${table.load(-87.33654)});`,
      ...expSteps(table, "c$"),
      `const g$ = v128.andnot(e$, f32x4.lt(x$, ${table.load(-87.33654)}));`,
      `const y$ = v128.bitselect(f32x4.add(x$, ${table.load(1)}), g$, ${positive}${table.load(0)}));`,
    ],
    slope: (table) => [`const y$ = f32x4.pmin(x$, ${table.load(1)});`],
  },
  sin: { value: (table) => sinSteps(table, "x$", 0), slope: (table) => sinSteps(table, "x$", 1) },
  cos: { value: (table) => sinSteps(table, "x$", 1), slope: (table) => sinSteps(table, "x$", 2) },
};
