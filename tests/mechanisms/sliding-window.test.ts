/** A window joined with linear attention: forms against the reference, its two limits, the layer and its ring. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import { linear } from "../../src/mechanisms/linear/index.ts";
import { formNames, type Values } from "../../src/mechanisms/mechanism.ts";
import type { SlidingWindowFormOptions } from "../../src/mechanisms/sliding-window/forms.ts";
import { slidingWindow } from "../../src/mechanisms/sliding-window/index.ts";
import { SlidingWindowLayer, type SlidingWindowOptions } from "../../src/mechanisms/sliding-window/layer.ts";
import { softmax } from "../../src/mechanisms/softmax/index.ts";
import { ModelState } from "../../src/models/state.ts";
import { agrees, differentiates, drawn, outputsOf, type ValueInputs } from "./form-case.ts";
import {
  assertWithin,
  ignoresPadding,
  initialized,
  layerDifferentiates,
  normalTensor,
  outputOf,
  streamsAlike,
} from "./layer-case.ts";

const { forms } = slidingWindow;
const host = hostDevice({ dtype: "float64", poison: true });
let wasm: Device;

before(async () => {
  // Tier C where there is one, else B.
  wasm = await openWasm({ tier: "c", threads: 2, poison: true });
});

after(() => {
  wasm.close();
  host.close();
});

/** A score of the window and a sum of the rest: 8·eps·sqrt(terms) of float32 and a margin for the exponentials' scores. */
const bound = (device: Device): number => (device === host ? 1e-13 : 4e-6);

const shapesOf = (B: number, T: number): Record<string, readonly number[]> => ({
  ...{ q: [B, T, 4, 6], k: [B, T, 2, 6], v: [B, T, 2, 5] },
});
const learned = { queryFeatures: [4, 6, 3], keyFeatures: [4, 6, 3] } as const;

interface Case {
  readonly shapes: (B: number, T: number) => Record<string, readonly number[]>;
  readonly options: SlidingWindowFormOptions;
}

const cases: Record<string, Case> = {
  "joint elu": { shapes: shapesOf, options: { window: 4 } },
  "joint learned": {
    shapes: (B, T) => ({ ...shapesOf(B, T), ...learned, windowFactor: [4], linearFactor: [4] }),
    options: { window: 5, scale: 0.8 },
  },
  "gated learned": {
    shapes: (B, T) => ({ ...shapesOf(B, T), ...learned, gate: [B, T, 4] }),
    options: { window: 3, join: "gated" },
  },
  "a window of one": { shapes: shapesOf, options: { window: 1 } },
  "no window": { shapes: shapesOf, options: { window: 0 } },
  "a window wider than the text": { shapes: shapesOf, options: { window: 40 } },
};

const cut = (inputs: ValueInputs, from: number, to: number): ValueInputs =>
  Object.fromEntries(
    Object.entries(inputs).map(([name, { data, shape }]) => {
      if (!slidingWindow.inputs[name]!.axes.startsWith("B T")) return [name, { data, shape }];
      const [B, T, ...rest] = shape as [number, number, ...number[]];
      const width = rest.reduce((a, b) => a * b, 1);
      const rows = Array.from({ length: B }, (_, b) => [
        ...data.subarray((b * T + from) * width, (b * T + to) * width),
      ]);
      return [name, { data: Float64Array.from(rows.flat()), shape: [B, to - from, ...rest] }];
    }),
  );

const outputIn = (x: Values, from: number, to: number): Float64Array =>
  cut({ q: x }, from, to)["q"]!.data as Float64Array;

for (const [name, { shapes, options }] of Object.entries(cases)) {
  const inputs = drawn(slidingWindow, shapes(2, 21));

  for (const form of formNames) {
    test(`sliding window ${form} agrees with its reference: ${name}`, () => {
      for (const device of [host, wasm])
        agrees(device, slidingWindow, forms[form], inputs, options, bound(device));
    });

    test(`sliding window ${form} carries its state over a cut: ${name}`, () => {
      for (const device of [host, wasm]) {
        const whole = outputsOf(device, forms[form], inputs, options);
        for (const at of [2, 9]) {
          const first = outputsOf(device, forms[form], cut(inputs, 0, at), options);
          const carried = Object.fromEntries(
            Object.values(slidingWindow.state).map((part) => [part.input, first[part.output]!]),
          );
          const rest = { ...cut(inputs, at, 21), ...carried };
          agrees(device, slidingWindow, forms[form], rest, options, bound(device));
          const second = outputsOf(device, forms[form], rest, options);
          assertWithin(second["output"]!.data, outputIn(whole["output"]!, at, 21), bound(device), "output");
        }
      }
    });

    test(`sliding window ${form} keeps packed sequences apart and leaves padding out: ${name}`, () => {
      const row = drawn(slidingWindow, shapes(1, 21));
      for (const device of [host, wasm]) {
        const cuSeqlens = tensor(device, [0, 4, 4, 21], [4], { dtype: "int32" });
        const values = Array.from({ length: 21 }, (_, i) => Number(i >= 4));
        const mask = tensor(device, values, [1, 21], { dtype: "int32" });
        const packed = outputsOf(device, forms[form], row, { ...options, cuSeqlens })["output"]!;
        const padded = outputsOf(device, forms[form], row, options, () => ({ mask }))["output"]!;
        const alone = outputsOf(device, forms[form], cut(row, 4, 21), options)["output"]!;
        const first = outputsOf(device, forms[form], cut(row, 0, 4), options)["output"]!;
        assertWithin(outputIn(packed, 4, 21), alone.data, bound(device), "packed");
        assertWithin(outputIn(packed, 0, 4), first.data, bound(device), "packed");
        assertWithin(outputIn(padded, 4, 21), alone.data, bound(device), "padded");
        cuSeqlens.dispose();
        mask.dispose();
      }
    });
  }

  test(`sliding window has the gradients of finite differences: ${name}`, () => {
    const small = drawn(slidingWindow, shapes(2, 8));
    differentiates(forms.chunkwise, small, options);
    const finals = outputsOf(host, forms.chunkwise, cut(small, 0, 5), options);
    const carried = Object.fromEntries(
      Object.values(slidingWindow.state).map(({ input, output }) => [input, finals[output]!]),
    );
    differentiates(forms.chunkwise, { ...cut(small, 5, 8), ...carried }, options);
  });
}

for (const reduction of slidingWindow.reductions) {
  test(`sliding window equals ${reduction.to} where ${reduction.when}`, () => {
    const other = { softmax, linear }[reduction.to]!;
    const {
      own,
      other: theirs,
      ownOptions,
      otherOptions,
    } = reduction.inputs(drawn(slidingWindow, shapesOf(2, 21)));
    for (const device of [host, wasm]) {
      const got = outputsOf(device, forms.chunkwise, own, ownOptions);
      const expected = outputsOf(device, other.forms.chunkwise, theirs, otherOptions);
      assertWithin(got["output"]!.data, expected["output"]!.data, bound(device), reduction.to);
    }
  });
}

test("sliding window gives the same bits for a prefix", () => {
  const inputs = drawn(slidingWindow, shapesOf(1, 90));
  const whole = outputsOf(wasm, forms.chunkwise, inputs, cases["joint elu"]!.options)["output"]!;
  for (const T of [1, 5, 33, 64, 70]) {
    const prefix = outputsOf(wasm, forms.chunkwise, cut(inputs, 0, T), cases["joint elu"]!.options)[
      "output"
    ]!;
    assert.deepEqual(prefix.data, outputIn(whole, 0, T), `first ${T}`);
  }
});

const kinds: Record<string, Partial<SlidingWindowOptions>> = {
  learned: { window: 5, keyValueHeads: 2 },
  "elu with positions": { window: 4, featureMap: "elu+1", rotary: { width: 4 }, bias: true },
  gated: { window: 6, join: "gated", featureWidth: 3, valueWidth: 5 },
  "without a window": { window: 0, featureMap: "elu+1" },
};

const make = (device: Device, own: Partial<SlidingWindowOptions> = {}): SlidingWindowLayer =>
  initialized(device, new SlidingWindowLayer({ width: 32, heads: 4, ...own }));

for (const [name, own] of Object.entries(kinds)) {
  test(`sliding window layer ${name} gives the same whole, in pieces and token by token`, () => {
    streamsAlike(make(host, own), normalTensor(host, "x", [2, 17, 32]), 1e-13);
    streamsAlike(make(wasm, own), normalTensor(wasm, "x", [2, 17, 32]), 4e-6);
  });

  test(`sliding window layer ${name} has the gradients of finite differences`, () => {
    layerDifferentiates(make(host, own), normalTensor(host, "x", [2, 9, 32], true));
  });

  test(`sliding window layer ${name} leaves padding out, from the beginning and behind a state`, () => {
    ignoresPadding(make(host, own), normalTensor(host, "x", [2, 12, 32], true), 1e-13);
  });
}

test("sliding window layer has a state of fixed size", () => {
  const layer = make(host, { window: 8, keyValueHeads: 2 });
  const states = new ModelState(host, [layer], 1);
  assert.equal(states.bytesPerToken, 0);
  assert.equal(states.bytesPerSequence, 4 * (2 * 8 * 2 * 8 + 4 * 16 * 9));
  states.dispose();
});

test("sliding window refuses what makes no sense", () => {
  const inputs = drawn(slidingWindow, shapesOf(1, 6));
  const call = (own: ValueInputs, options: SlidingWindowFormOptions) =>
    outputsOf(host, forms.chunkwise, own, options);
  const { finalKeys, finalValues } = call(inputs, { window: 5 });
  assert.throws(() => call(inputs, { window: -1 }), { code: "E_CONFIG", message: /window/ });
  assert.throws(() => call(inputs, { window: 1.5 }), { code: "E_CONFIG", message: /window/ });
  assert.throws(() => call(inputs, { causal: false }), {
    code: "E_UNSUPPORTED",
    message: /softmax or linear/,
  });
  assert.throws(() => call(inputs, { join: "gated" }), { code: "E_CONFIG", message: /gate/ });
  assert.throws(() => call({ ...inputs, initialKeys: finalKeys! }, {}), { code: "E_CONFIG" });
  const buffer = { initialKeys: finalKeys!, initialValues: finalValues! };
  assert.throws(() => call({ ...inputs, ...buffer }, { window: 3 }), { code: "E_SHAPE", message: /window/ });
  const options = { width: 32, heads: 4 };
  assert.throws(() => new SlidingWindowLayer({ ...options, window: -1 }), { code: "E_CONFIG" });
  assert.throws(() => new SlidingWindowLayer({ ...options, featureMap: "relu" }), { code: "E_CONFIG" });
  const layer = make(host);
  const x = normalTensor(host, "x", [1, 6, 32]);
  assert.throws(() => outputOf(layer, x, { causal: false }), { code: "E_UNSUPPORTED" });
});
