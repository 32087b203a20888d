import type { InputSpec, OpBench, OpCase } from "../op.ts";
import type { GatedRmsNormOptions } from "./rms-norm.ts";

const lengths = [1, 3, 17, 33, 65, 127] as const;

type Shapes = Readonly<Record<string, readonly number[]>>;

function normCase<Options>(name: string, shapes: Shapes, options: Options, fails?: string): OpCase<Options> {
  const inputs: Record<string, InputSpec> = {};
  for (const [input, shape] of Object.entries(shapes)) inputs[input] = { shape };
  const shape = shapes["x"]!;
  const n = Math.max(1, shape[shape.length - 1] ?? 1);
  const rows = shape.slice(0, -1).reduce((product, length) => product * length, 1);
  const terms = n + 4;
  return {
    name,
    inputs,
    options,
    terms,
    gradientTerms: { x: terms, gate: terms, weight: rows + terms, bias: rows },
    ...(fails && { fails }),
  };
}

/** A row of one is its own norm: with a small eps nothing but cancelled digits is left of the gradient. */
function epsFor(n: number): { readonly eps?: number } {
  return n === 1 ? { eps: 1 } : {};
}

const gates = [
  ["silu last", {}],
  ["sigmoid last", { activation: "sigmoid" }],
  ["silu first", { order: "gate-first" }],
  ["sigmoid first", { activation: "sigmoid", order: "gate-first" }],
] as const;

/** Plain, zero-centred, grouped and gated RMS norms. */
export const rmsNormCases: readonly OpCase<GatedRmsNormOptions>[] = [
  ...lengths.map((n) => normCase(`n=${n}`, { x: [5, n], weight: [n] }, epsFor(n))),
  normCase("no weight", { x: [5, 17] }, { eps: 0.1 }),
  normCase("zero-centred", { x: [3, 4, 33], weight: [33] }, { zeroCentered: true }),
  normCase("per head", { x: [2, 3, 4, 17], weight: [17] }, {}),
  normCase("groups", { x: [2, 19, 36], weight: [36] }, { groups: 4 }),
  normCase("many rows", { x: [67, 21], weight: [21] }, {}),
  normCase("many long rows", { x: [50, 1030], weight: [1030] }, { zeroCentered: true }),
  ...gates.flatMap(([name, options]) => [
    normCase<GatedRmsNormOptions>(`${name} n=33`, { x: [5, 33], gate: [5, 33], weight: [33] }, options),
    normCase<GatedRmsNormOptions>(`${name} n=3`, { x: [2, 2, 3], gate: [2, 2, 3] }, options),
    normCase<GatedRmsNormOptions>(
      `${name} in groups`,
      { x: [21, 2, 34], gate: [21, 2, 34], weight: [34] },
      { ...options, groups: 2, zeroCentered: true },
    ),
  ]),
  normCase("no rows", { x: [0, 8], weight: [8] }, {}),
  normCase("no columns", { x: [3, 0], weight: [0] }, {}),
  normCase("gated, no rows", { x: [0, 8], gate: [0, 8], weight: [8] }, {}),
  normCase("disagree", { x: [3, 8], weight: [7] }, {}, "E_SHAPE"),
  normCase("gated, disagree", { x: [3, 8], gate: [2, 8] }, {}, "E_SHAPE"),
  normCase("groups that do not divide", { x: [3, 8] }, { groups: 3 }, "E_SHAPE"),
  normCase("eps of zero", { x: [3, 8] }, { eps: 0 }, "E_CONFIG"),
];

/** With weight and bias, one of them, or none. */
export const layerNormCases: readonly OpCase<{ readonly eps?: number }>[] = [
  ...lengths.filter((n) => n > 1).map((n) => normCase(`n=${n}`, { x: [5, n], weight: [n], bias: [n] }, {})),
  normCase("n=1", { x: [5, 1], bias: [1] }, {}),
  normCase("no weight", { x: [2, 5, 17] }, { eps: 0.1 }),
  normCase("weight alone", { x: [5, 18], weight: [18] }, {}),
  normCase("bias alone", { x: [5, 19], bias: [19] }, {}),
  normCase("many rows", { x: [67, 21], weight: [21], bias: [21] }, {}),
  normCase("many long rows", { x: [50, 1030], weight: [1030], bias: [1030] }, {}),
  normCase("no rows", { x: [0, 8], weight: [8], bias: [8] }, {}),
  normCase("no columns", { x: [3, 0], weight: [0] }, {}),
  normCase("disagree", { x: [3, 8], weight: [8], bias: [7] }, {}, "E_SHAPE"),
  normCase("eps of zero", { x: [3, 8] }, { eps: 0 }, "E_CONFIG"),
];

/** Rows of every length; one of zeros, where the gradient is 1/√eps and finite. */
export const l2NormCases: readonly OpCase<{ readonly eps?: number }>[] = [
  ...lengths.map((n) => normCase(`n=${n}`, { x: [5, n] }, epsFor(n))),
  normCase("per head", { x: [2, 3, 4, 17] }, { eps: 0.01 }),
  {
    ...normCase("zeros", { x: [2, 5] }, { eps: 0.01 }),
    inputs: { x: { shape: [2, 5], sample: "uniform", low: 0, high: 1e-30 } },
  },
  normCase("no rows", { x: [0, 8] }, {}),
  normCase("a scalar", { x: [] }, {}, "E_SHAPE"),
];

/** 1,024 rows of 1,024, beyond the second-level cache. */
export function normBench(more: readonly ("weight" | "bias" | "gate")[]): OpBench<Record<string, never>> {
  const rows = 1024;
  const width = 1024;
  const size = rows * width;
  const inputs: Record<string, InputSpec> = { x: { shape: [rows, width] } };
  for (const name of more) inputs[name] = { shape: name === "gate" ? [rows, width] : [width] };
  const isGated = more.includes("gate");
  return {
    inputs,
    options: {},
    bytes: { forward: (isGated ? 12 : 8) * size, backward: (isGated ? 20 : 12) * size },
    ...(isGated && { transcendentals: { forward: size, backward: size } }),
  };
}
