/** Softmax and latent attention: forms against references, state, padding, packing, gradients. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import { latentAttention } from "../../src/mechanisms/latent-attention/index.ts";
import type { FormOptions, Mechanism, Values } from "../../src/mechanisms/mechanism.ts";
import { softmax } from "../../src/mechanisms/softmax/index.ts";
import { agrees, differentiates, drawn, outputsOf, type ValueInputs } from "./form-case.ts";
import { assertWithin } from "./layer-case.ts";

const host = hostDevice({ dtype: "float64", poison: true });
const devices: [name: string, device: Device, bound: number][] = [["host", host, 1e-13]];

before(async () => {
  // Tier C where there is one, else B.
  devices.push(["wasm", await openWasm({ tier: "c", threads: 2, poison: true }), 2e-6]);
});

after(() => {
  for (const [, device] of devices) device.close();
});

interface Case {
  readonly mechanism: Mechanism;
  readonly shapes: (B: number, T: number) => Record<string, readonly number[]>;
  readonly options?: FormOptions & { readonly window?: number };
}

const latentShapes = (B: number, T: number): Record<string, readonly number[]> => ({
  ...{ q: [B, T, 3, 5], r: [B, T, 3, 4], c: [B, T, 11], p: [B, T, 4] },
  ...{ keyUp: [3, 5, 11], valueUp: [3, 7, 11] },
});

const cases: Record<string, Case> = {
  softmax: { mechanism: softmax, shapes: (B, T) => ({ q: [B, T, 6, 5], k: [B, T, 2, 5], v: [B, T, 2, 7] }) },
  "softmax in a window": {
    mechanism: softmax,
    shapes: (B, T) => ({ q: [B, T, 2, 8], k: [B, T, 2, 8], v: [B, T, 2, 8] }),
    options: { window: 4, scale: 0.7 },
  },
  "latent attention": { mechanism: latentAttention, shapes: latentShapes },
};

const tokens = ({ data, shape }: Values, from: number, to: number): Values => {
  const [B, T, ...rest] = shape as [number, number, ...number[]];
  const width = rest.reduce((a, b) => a * b, 1);
  const rows = Array.from({ length: B }, (_, b) => [
    ...data.subarray((b * T + from) * width, (b * T + to) * width),
  ]);
  return { data: Float64Array.from(rows.flat()), shape: [B, to - from, ...rest] };
};

const span = (mechanism: Mechanism, inputs: ValueInputs, from: number, to: number): ValueInputs =>
  Object.fromEntries(
    Object.entries(inputs).map(([name, x]) => [
      name,
      mechanism.inputs[name]!.axes.startsWith("B T") ? tokens(x, from, to) : x,
    ]),
  );

for (const [name, { mechanism, shapes, options = {} }] of Object.entries(cases)) {
  const { forms } = mechanism;
  const inputs = drawn(mechanism, shapes(2, 21));
  for (const form of ["chunkwise", "parallel", "step"] as const) {
    test(`${name} ${form} agrees with its reference`, () => {
      for (const [, device, bound] of devices) agrees(device, mechanism, forms[form], inputs, options, bound);
    });

    test(`${name} ${form} carries its state over a cut`, () => {
      for (const [, device, bound] of devices) {
        const whole = outputsOf(device, forms[form], inputs, options);
        const first = outputsOf(device, forms[form], span(mechanism, inputs, 0, 9), options);
        const carried = Object.fromEntries(
          Object.values(mechanism.state).map((part) => [part.input, first[part.output]!]),
        );
        const rest = { ...span(mechanism, inputs, 9, 21), ...carried };
        agrees(device, mechanism, forms[form], rest, options, bound);
        const second = outputsOf(device, forms[form], rest, options);
        assertWithin(second["output"]!.data, tokens(whole["output"]!, 9, 21).data, bound, "output");
        for (const { output } of Object.values(mechanism.state))
          assert.deepEqual(second[output]!.data, whole[output]!.data, output);
      }
    });

    test(`${name} ${form} keeps packed sequences apart and leaves padding out`, () => {
      const packed = drawn(mechanism, shapes(1, 21));
      for (const [, device, bound] of devices) {
        const cuSeqlens = tensor(device, [0, 4, 4, 21], [4], { dtype: "int32" });
        const mask = tensor(
          device,
          Array.from({ length: 21 }, (_, i) => Number(i >= 4)),
          [1, 21],
          { dtype: "int32" },
        );
        const all = outputsOf(device, forms[form], packed, { ...options, cuSeqlens })["output"]!;
        const padded = outputsOf(device, forms[form], packed, options, () => ({ mask }))["output"]!;
        for (const [from, to] of [
          [0, 4],
          [4, 21],
        ] as const) {
          const alone = outputsOf(device, forms[form], span(mechanism, packed, from, to), options)["output"]!;
          assertWithin(tokens(all, from, to).data, alone.data, bound, "packed");
          if (from === 4) assertWithin(tokens(padded, 4, 21).data, alone.data, bound, "padded");
        }
        assert.ok(tokens(padded, 0, 4).data.every((value) => value === 0));
        cuSeqlens.dispose();
        mask.dispose();
      }
    });
  }

  for (const form of ["chunkwise", "parallel"] as const) {
    test(`${name} ${form} has the gradients of finite differences`, () => {
      const small = drawn(mechanism, shapes(2, 6));
      differentiates(forms[form], small, options);
      const finals = outputsOf(host, forms[form], small, options);
      const initial = Object.fromEntries(
        Object.values(mechanism.state).map(({ input, output }) => [input, finals[output]!]),
      );
      differentiates(forms[form], { ...small, ...initial }, options);
    });
  }

  if (options.window === undefined) {
    test(`${name} sees everything where it is not causal`, () => {
      const other = { ...inputs, ...span(mechanism, drawn(mechanism, shapes(2, 9)), 0, 9) };
      const fewer = Object.fromEntries(
        Object.entries(inputs).map(([key, x]) => [
          key,
          key === "q" || mechanism.inputs[key]!.ofQueries ? other[key]! : x,
        ]),
      );
      for (const form of ["chunkwise", "parallel"] as const) {
        for (const [, device, bound] of devices)
          agrees(device, mechanism, forms[form], fewer, { causal: false }, bound);
        const rows = drawn(mechanism, shapes(1, 5));
        differentiates(forms[form], rows, { causal: false });
      }
    });
  }
}

test("softmax takes a bias and hides keys, in tiles and by the matrix", () => {
  const shapes = { q: [2, 5, 4, 3], k: [2, 7, 2, 3], v: [2, 7, 2, 2] } as const;
  const inputs = drawn(softmax, shapes);
  const bias = { data: Float64Array.from({ length: 4 * 35 }, (_, i) => Math.sin(i)), shape: [1, 4, 5, 7] };
  const keyMask = { data: Float64Array.of(1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0), shape: [2, 7] };
  const both = { data: Float64Array.of(...bias.data, ...bias.data), shape: [2, 4, 5, 7] };
  const expected = softmax.reference({ ...inputs, bias: both, keyMask }, { causal: false });
  const extra = (device: Device) => ({
    bias: tensor(device, bias.data, bias.shape, { requiresGrad: true }),
    mask: tensor(device, keyMask.data, [2, 7], { dtype: "int32" }),
  });
  for (const form of ["chunkwise", "parallel"] as const) {
    for (const [, device, bound] of devices) {
      const { output } = outputsOf(device, softmax.forms[form], inputs, { causal: false }, extra);
      assertWithin(output!.data, expected["output"]!.data, bound, form);
      assert.ok(
        output!.data.subarray(5 * 4 * 2).every((value) => value === 0),
        "rows without keys are zeros",
      );
    }
    differentiates(softmax.forms[form], inputs, { causal: false }, extra);
  }
});

test("softmax forms refuse what makes no sense", () => {
  const inputs = drawn(softmax, cases["softmax"]!.shapes(1, 4));
  const call = (own: ValueInputs, options: FormOptions & { window?: number }) =>
    outputsOf(host, softmax.forms.chunkwise, own, options);
  const past = { shape: [1, 2, 2, 5], data: new Float64Array(20) };
  const mask = { shape: [1, 4], data: new Float64Array(4) };
  assert.throws(() => call(inputs, { window: -1 }), { code: "E_CONFIG", message: /window/ });
  assert.throws(() => call(inputs, { window: 3, causal: false }), { code: "E_CONFIG", message: /window/ });
  assert.throws(() => call({ ...inputs, initialKeys: past }, {}), { code: "E_CONFIG" });
  assert.throws(() => call({ ...inputs, k: inputs["v"]! }, {}), { code: "E_SHAPE", message: /K/ });
  assert.throws(() => call({ ...inputs, mask }, {}), { code: "E_DTYPE", message: /mask/ });
  assert.throws(() => outputsOf(host, softmax.forms.step, inputs, { causal: false }), {
    code: "E_UNSUPPORTED",
  });
});
