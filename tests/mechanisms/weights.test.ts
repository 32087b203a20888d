/** The T×T view: weights times values are the output, and causal ones show nothing of the future. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { scope } from "../../src/autograd/scope.ts";
import { noGrad } from "../../src/autograd/tape.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import type { Form, FormOptions, Mechanism } from "../../src/mechanisms/mechanism.ts";
import { mechanism } from "../../src/mechanisms/registry.ts";
import { impliedWeights } from "../../src/mechanisms/weights.ts";
import { drawn, placed } from "./form-case.ts";
import { assertWithin } from "./layer-case.ts";

const heads = { q: [2, 9, 4, 6], k: [2, 9, 2, 6], v: [2, 9, 2, 5] } as const;
const equal = { q: [2, 9, 4, 6], k: [2, 9, 4, 6], v: [2, 9, 4, 5] } as const;

interface Case {
  readonly id: string;
  readonly shapes: Readonly<Record<string, readonly number[]>>;
  readonly options?: FormOptions & Readonly<Record<string, unknown>>;
}

const cases: readonly Case[] = [
  { id: "softmax", shapes: heads },
  { id: "softmax", shapes: heads, options: { causal: false } },
  { id: "softmax", shapes: heads, options: { window: 3 } },
  { id: "sliding-window", shapes: heads, options: { window: 3 } },
  { id: "linformer", shapes: { ...equal, keyProjection: [1, 3, 9] }, options: { causal: false } },
  { id: "nystrom", shapes: { ...equal, convolution: [4, 3] }, options: { causal: false, landmarks: 4 } },
  { id: "lsh", shapes: { q: equal.q, v: equal.v, rotations: [2, 6, 2] }, options: { group: 2 } },
  { id: "linear", shapes: equal },
  { id: "gated-delta", shapes: { ...equal, g: [2, 9, 4], beta: [2, 9, 4] } },
];

function checkWeights(own: Mechanism, { shapes, options = {} }: Case): void {
  const device = hostDevice({ dtype: "float64", poison: true });
  scope(device, () =>
    noGrad(() => {
      const inputs = placed(device, drawn(own, shapes));
      const weights = impliedWeights(own, inputs, options);
      const [B, H, T, Tk] = weights.shape as [number, number, number, number];
      const w = weights.dataSync();
      const output = (own.forms.chunkwise as Form)(inputs, options)["output"]!.dataSync();
      const v = inputs["v"]!.dataSync();
      const [HV, V] = inputs["v"]!.shape.slice(2) as [number, number];
      const expected = new Float64Array(output.length);
      for (let b = 0; b < B; b++)
        for (let h = 0; h < H; h++)
          for (let t = 0; t < T; t++)
            for (let s = 0; s < Tk; s++) {
              const weight = w[((b * H + h) * T + t) * Tk + s]!;
              if (options.causal !== false && s > t) assert.equal(weight, 0, `${own.id} sees ${s} from ${t}`);
              const from = ((b * Tk + s) * HV + Math.floor(h / (H / HV))) * V;
              for (let c = 0; c < V; c++) expected[((b * T + t) * H + h) * V + c]! += weight * v[from + c]!;
            }
      assertWithin(output, expected, 1e-12, own.id);
    }),
  );
  device.close();
}

for (const own of cases) {
  const words = Object.entries(own.options ?? {}).map(([name, value]) => `${name} ${value}`);
  test(`weights of ${[own.id, ...words].join(" ")} times values are the output`, () => {
    checkWeights(mechanism(own.id), own);
  });
}

test("weights of latent attention sum to 1 over what each token sees", () => {
  const device = hostDevice({ dtype: "float64" });
  const own = mechanism("latent-attention");
  const shapes = { q: [1, 7, 2, 4], r: [1, 7, 2, 2], c: [1, 7, 5], p: [1, 7, 2] };
  const inputs = placed(device, drawn(own, { ...shapes, keyUp: [2, 4, 5], valueUp: [2, 3, 5] }));
  const w = Float64Array.from(impliedWeights(own, inputs).dataSync());
  for (let row = 0; row < 14; row++) {
    const sum = w.subarray(row * 7, row * 7 + 7).reduce((a, b) => a + b, 0);
    assert.ok(Math.abs(sum - 1) < 1e-13);
    assert.ok(w.subarray(row * 7 + (row % 7) + 1, row * 7 + 7).every((x) => x === 0));
  }
  device.close();
});

test("a hash that lets the future in is caught by its weights", () => {
  const lsh = mechanism("lsh");
  const leak: Mechanism = {
    ...lsh,
    forms: {
      ...lsh.forms,
      chunkwise: (inputs, options) => (lsh.forms.chunkwise as Form)(inputs, { ...options, causal: false }),
    },
  };
  const own = cases.find(({ id }) => id === "lsh")!;
  assert.throws(() => checkWeights(leak, own), /sees/);
});
