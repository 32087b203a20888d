/** Linformer and Nyström attention: forms against references, golden values, layers, what they refuse. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import { linformer } from "../../src/mechanisms/linformer/index.ts";
import { LinformerLayer, type LinformerOptions } from "../../src/mechanisms/linformer/layer.ts";
import type { FormOptions, Mechanism, Values } from "../../src/mechanisms/mechanism.ts";
import type { NystromFormOptions } from "../../src/mechanisms/nystrom/forms.ts";
import { nystrom } from "../../src/mechanisms/nystrom/index.ts";
import { NystromLayer, type NystromOptions } from "../../src/mechanisms/nystrom/layer.ts";
import { softmax } from "../../src/mechanisms/softmax/index.ts";
import { Encoder } from "../../src/models/encoder.ts";
import { readGolden } from "../attention/golden.ts";
import { agrees, differentiates, drawn, outputsOf, type ValueInputs } from "./form-case.ts";
import {
  assertWithin,
  initialized,
  layerDifferentiates,
  normalTensor,
  outputOf,
  tokens,
} from "./layer-case.ts";

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

interface Case {
  readonly mechanism: Mechanism;
  readonly shapes: (B: number, T: number) => Record<string, readonly number[]>;
  readonly options: NystromFormOptions;
  readonly bound: number;
}

const rows = (B: number, T: number, Tq = T): Record<string, readonly number[]> => ({
  ...{ q: [B, Tq, 3, 6], k: [B, T, 3, 6], v: [B, T, 3, 5] },
});

const projections = (G: number, both: boolean): Record<string, readonly number[]> => ({
  keyProjection: [G, 4, 25],
  ...(both ? { valueProjection: [G, 4, 25] } : {}),
});

const cases: Record<string, Case> = {
  "linformer, every head": {
    mechanism: linformer,
    shapes: (B, T) => ({ ...rows(B, T), ...projections(3, true) }),
    ...{ options: {}, bound: 1e-6 },
  },
  "linformer, one for keys and one for values": {
    mechanism: linformer,
    shapes: (B, T) => ({ ...rows(B, T), ...projections(1, true) }),
    ...{ options: { scale: 0.9 }, bound: 1e-6 },
  },
  "linformer, one for both": {
    mechanism: linformer,
    shapes: (B, T) => ({ ...rows(B, T), ...projections(1, false) }),
    ...{ options: {}, bound: 1e-6 },
  },
  "linformer, queries of another length": {
    mechanism: linformer,
    shapes: (B, T) => ({ ...rows(B, T, 3), ...projections(3, true) }),
    ...{ options: {}, bound: 1e-6 },
  },
  // The pseudo-inverse multiplies rounding errors by its condition.
  "nystrom, segments of unequal length": {
    mechanism: nystrom,
    ...{ shapes: rows, options: { landmarks: 5 }, bound: 2e-5 },
  },
  "nystrom, with a convolution": {
    mechanism: nystrom,
    shapes: (B, T) => ({ ...rows(B, T), convolution: [3, 5] }),
    ...{ options: { landmarks: 3, iterations: 4 }, bound: 2e-5 },
  },
  "nystrom, queries of another length": {
    mechanism: nystrom,
    shapes: (B, T) => ({ ...rows(B, T, 4), convolution: [3, 3] }),
    ...{ options: { landmarks: 3 }, bound: 2e-5 },
  },
  "nystrom, as many landmarks as tokens": {
    mechanism: nystrom,
    ...{ shapes: rows, options: {}, bound: 2e-6 },
  },
};

const cut = ({ data, shape }: Values, from: number, to: number): Values => {
  const [B, T, ...rest] = shape as [number, number, ...number[]];
  const width = rest.reduce((a, b) => a * b, 1);
  const parts = Array.from({ length: B }, (_, b) => [
    ...data.subarray((b * T + from) * width, (b * T + to) * width),
  ]);
  return { data: Float64Array.from(parts.flat()), shape: [B, to - from, ...rest] };
};

const span = (mechanism: Mechanism, inputs: ValueInputs, from: number, to: number): ValueInputs =>
  Object.fromEntries(
    Object.entries(inputs).map(([name, x]) => [
      name,
      mechanism.inputs[name]!.axes.startsWith("B T") ? cut(x, from, to) : x,
    ]),
  );

for (const [name, { mechanism, shapes, options, bound }] of Object.entries(cases)) {
  for (const form of ["chunkwise", "parallel"] as const) {
    test(`${form} agrees with its reference: ${name}`, () => {
      const inputs = drawn(mechanism, shapes(2, 21));
      agrees(host, mechanism, mechanism.forms[form], inputs, options, 1e-11);
      agrees(wasm, mechanism, mechanism.forms[form], inputs, options, bound);
    });

    test(`${form} has the gradients of finite differences: ${name}`, () => {
      differentiates(mechanism.forms[form], drawn(mechanism, shapes(2, 7)), options);
    });
  }

  if (shapes(1, 21)["q"]![1] === 21) {
    test(`packed sequences and padded rows stand alone: ${name}`, () => {
      const inputs = drawn(mechanism, shapes(1, 21));
      const ints = (values: number[], shape: number[]) => tensor(host, values, shape, { dtype: "int32" });
      const cuSeqlens = ints([0, 7, 7, 21], [4]);
      const form = mechanism.forms.chunkwise;
      const all = outputsOf(host, form, inputs, { ...options, cuSeqlens })["output"]!;
      const mask = ints(
        Array.from({ length: 21 }, (_, i) => Number(i >= 7)),
        [1, 21],
      );
      const padded = outputsOf(host, form, inputs, options, () => ({ mask }))["output"]!;
      const first = outputsOf(host, form, span(mechanism, inputs, 0, 7), options)["output"]!;
      const second = outputsOf(host, form, span(mechanism, inputs, 7, 21), options)["output"]!;
      assertWithin(cut(all, 0, 7).data, first.data, 1e-12, "first");
      assertWithin(cut(all, 7, 21).data, second.data, 1e-12, "second");
      assertWithin(cut(padded, 7, 21).data, second.data, 1e-12, "padded");
      assert.ok(cut(padded, 0, 7).data.every((value) => value === 0));
    });
  }
}

for (const name of ["nystrom-s0"]) {
  test(`nystrom holds ${name}, forward and backward`, () => {
    const { meta, tensors } = readGolden(name);
    const options: NystromFormOptions = {
      landmarks: Number(meta["landmarks"]),
      iterations: Number(meta["pinvIterations"]),
    };
    const inputs = { q: tensors["in.q"]!, k: tensors["in.k"]!, v: tensors["in.v"]! } as ValueInputs;
    for (const [device, bound] of [
      [host, 1e-12],
      [wasm, 2e-5],
    ] as const) {
      const { output } = outputsOf(device, nystrom.forms.chunkwise, inputs, options as NystromFormOptions);
      assertWithin(output!.data, tensors["out.output"]!.data, bound, name);
    }
  });
}

test("a row without keys is zeros with zero gradients", () => {
  for (const { mechanism, shapes, options } of [
    cases["linformer, queries of another length"]!,
    cases["nystrom, queries of another length"]!,
  ]) {
    const inputs = drawn(mechanism, shapes(2, 6));
    const extra = (device: Device) => ({
      mask: tensor(device, [1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0], [2, 6], { dtype: "int32" }),
    });
    const { output } = outputsOf(host, mechanism.forms.chunkwise, inputs, options, extra);
    const half = output!.data.length / 2;
    assert.ok(output!.data.subarray(half).every((value) => value === 0));
    assert.ok(output!.data.subarray(0, half).every((value) => value !== 0));
    differentiates(mechanism.forms.chunkwise, inputs, options, extra);
  }
});

test("nystrom equals softmax with as many landmarks as tokens", () => {
  const [reduction] = nystrom.reductions;
  const drawnInputs = drawn(nystrom, rows(2, 21));
  const { own, other, ownOptions, otherOptions } = reduction!.inputs(drawnInputs);
  const got = outputsOf(wasm, nystrom.forms.chunkwise, own, ownOptions);
  const expected = outputsOf(wasm, softmax.forms.chunkwise, other, otherOptions);
  assert.deepEqual(got["output"]!.data, expected["output"]!.data);
});

const linformers: Record<string, Partial<LinformerOptions>> = {
  none: { sharing: "none" },
  heads: { sharing: "heads", bias: true },
  "key-value": { sharing: "key-value", projectionLength: [3, 5], layer: 1 },
  layer: { sharing: "layer" },
};

const full = { causal: false } as const;

for (const [name, own] of Object.entries(linformers)) {
  test(`linformer layer that shares ${name} has gradients and leaves padding out`, () => {
    const options = { width: 32, heads: 4, length: 12, projectionLength: 4, ...own };
    const layer = initialized(host, new LinformerLayer(options));
    const x = normalTensor(host, "x", [2, 9, 32], true);
    layerDifferentiates(layer, x, full);
    const mask = tensor(host, [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [2, 9], {
      dtype: "int32",
    });
    const y = outputOf(layer, x, { ...full, mask });
    assertWithin(
      y.subarray(2 * 32, 9 * 32),
      outputOf(layer, tokens(x, 2, 9), full).subarray(0, 7 * 32),
      1e-13,
      "left",
    );
  });
}

test("linformer layers of one model share their matrix where they are told to", () => {
  const count = (sharing: string): number =>
    new Encoder({
      ...{ vocabularySize: 5, width: 8, layers: 3, heads: 2 },
      pattern: [{ id: "linformer", sharing, length: 6, projectionLength: 2 }],
    }).parameterCount;
  assert.equal(count("key-value") - count("layer"), 2 * 12);
  assert.equal(count("heads") - count("key-value"), 3 * 12);
  assert.equal(count("none") - count("heads"), 3 * 2 * 12);
});

const nystroms: Record<string, Partial<NystromOptions>> = {
  plain: { landmarks: 3 },
  "with a convolution": { landmarks: 4, convWidth: 3, bias: true },
};

for (const [name, own] of Object.entries(nystroms)) {
  test(`nystrom layer ${name} has gradients, reads a memory, and takes short sequences`, () => {
    const layer = initialized(host, new NystromLayer({ width: 32, heads: 4, ...own }));
    const x = normalTensor(host, "x", [2, 9, 32], true);
    layerDifferentiates(layer, x, full);
    assert.equal(outputOf(layer, tokens(x, 0, 2), full).length, 2 * 2 * 32);
    const memory = normalTensor(host, "memory", [2, 7, 32]);
    layerDifferentiates(layer, x, { causal: true, memory });
  });
}

test("mechanisms that see everything refuse what makes no sense", () => {
  const inputs = drawn(linformer, { ...rows(1, 8), ...projections(1, false) });
  const linformerOf = (own: ValueInputs, options: FormOptions = {}) =>
    outputsOf(host, linformer.forms.chunkwise, own, options);
  const nystromOf = (options: NystromFormOptions) =>
    outputsOf(host, nystrom.forms.chunkwise, drawn(nystrom, rows(1, 8)), options);
  const refusal = { code: "E_UNSUPPORTED", message: /sums? over|means over.*sliding-window/s };
  assert.throws(() => linformerOf(inputs, { causal: true }), {
    code: "E_UNSUPPORTED",
    message: /sliding-window/,
  });
  assert.throws(() => nystromOf({ causal: true }), refusal);
  assert.throws(() => linformerOf({ ...inputs, ...drawn(linformer, rows(1, 3)) }), {
    code: "E_SHAPE",
    message: /M 4/,
  });
  assert.throws(() => linformerOf({ ...inputs, ...drawn(linformer, rows(1, 30)) }), {
    code: "E_SHAPE",
    message: /L 25/,
  });
  assert.throws(() => nystromOf({ landmarks: 9 }), { code: "E_SHAPE", message: /landmarks/ });
  assert.throws(() => nystromOf({ landmarks: 0 }), { code: "E_CONFIG", message: /landmarks/ });
  const options = { width: 32, heads: 4 };
  assert.throws(() => new LinformerLayer({ ...options, length: 8, projectionLength: 9 }), {
    code: "E_CONFIG",
  });
  assert.throws(() => new LinformerLayer({ ...options, sharing: "all" as "none" }), { code: "E_CONFIG" });
  assert.throws(() => new NystromLayer({ ...options, convWidth: 4 }), { code: "E_CONFIG" });
  const x = normalTensor(host, "x", [1, 6, 32]);
  for (const layer of [new LinformerLayer(options), new NystromLayer(options)])
    assert.throws(() => outputOf(initialized(host, layer), x), {
      code: "E_UNSUPPORTED",
      message: /not causal/,
    });
});
