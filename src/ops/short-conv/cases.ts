import type { OpBench, OpCase } from "../op.ts";
import type { ShortConvOptions } from "./index.ts";

const B = 2;

function dense(T: number, C: number, W: number, options: ShortConvOptions): OpCase<ShortConvOptions> {
  return {
    name: `T=${T} C=${C} W=${W} ${options.activation ?? "none"}`,
    inputs: {
      x: { shape: [B, T, C] },
      weight: { shape: [C, W] },
      bias: { shape: [C] },
      initialState: { shape: [B, W - 1, C] },
    },
    options,
    terms: W + 1,
    gradientTerms: { x: W, weight: B * (T + W), bias: B * T, initialState: W },
  };
}

const bench = { T: 4096, C: 768, W: 4 };

/** Shapes that prove the op: pieces shorter than the kernel, widths that fill no vector, packed rows. */
export const shortConvCases: {
  cases: readonly OpCase<ShortConvOptions>[];
  bench: OpBench<ShortConvOptions>;
} = {
  cases: [
    dense(1, 3, 4, { activation: "silu" }),
    dense(2, 17, 4, {}),
    dense(33, 65, 4, { activation: "silu" }),
    dense(130, 5, 3, { activation: "silu" }),
    dense(7, 33, 1, { activation: "silu" }),
    dense(0, 4, 4, {}),
    {
      name: "packed with empty and short members",
      inputs: {
        x: { shape: [1, 12, 6] },
        weight: { shape: [6, 4] },
        initialState: { shape: [4, 3, 6] },
        cuSeqlens: { shape: [5], sample: "values", values: [0, 0, 1, 3, 12] },
      },
      options: { activation: "silu" },
      terms: 5,
      gradientTerms: { weight: 24 },
    },
    {
      name: "channels disagree",
      inputs: { x: { shape: [1, 4, 6] }, weight: { shape: [5, 4] } },
      options: {},
      terms: 1,
      fails: "E_SHAPE",
    },
  ],
  bench: {
    inputs: { x: { shape: [1, bench.T, bench.C] }, weight: { shape: [bench.C, bench.W] } },
    options: { activation: "silu" },
    bytes: { forward: 8 * bench.T * bench.C, backward: 12 * bench.T * bench.C },
    transcendentals: { forward: bench.T * bench.C, backward: bench.T * bench.C },
  },
};
