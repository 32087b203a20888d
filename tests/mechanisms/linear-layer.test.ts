/** The layer of linear attention with rotary positions, and states that belong to another layer. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { scope } from "../../src/autograd/scope.ts";
import { noGrad } from "../../src/autograd/tape.ts";
import type { Tensor } from "../../src/autograd/tensor.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import type { Layer } from "../../src/mechanisms/layer.ts";
import { LinearAttentionLayer } from "../../src/mechanisms/linear/layer.ts";
import { mechanism } from "../../src/mechanisms/registry.ts";
import { ModelState } from "../../src/models/state.ts";
import { assertWithin, contextOf, initialized, normalTensor, outputOf } from "./layer-case.ts";

const host = hostDevice({ dtype: "float64", poison: true });
after(() => host.close());

const map = (x: number): number => (x < 0 ? Math.exp(x) : x + 1);

/** Channels i and i + K/2 turned by the angle p · base^(−2i/K). */
function turned(x: readonly number[], p: number, base: number): number[] {
  const half = x.length / 2;
  const y = [...x];
  for (let i = 0; i < half; i++) {
    const angle = p * base ** ((-2 * i) / x.length);
    y[i] = x[i]! * Math.cos(angle) - x[i + half]! * Math.sin(angle);
    y[i + half] = x[i + half]! * Math.cos(angle) + x[i]! * Math.sin(angle);
  }
  return y;
}

const dot = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, value, i) => sum + value * b[i]!, 0);

test("rotary positions turn the numerator and leave the denominator", () => {
  const [D, H, K, T, base] = [12, 2, 6, 7, 50];
  const layer = initialized(host, new LinearAttentionLayer({ width: D, heads: H, rotaryBase: base }));
  const x = normalTensor(host, "x", [1, T, D]);
  const rows = (proj: { forward(x: Tensor): Tensor }): number[][][] =>
    scope(host, () => {
      const values = [...noGrad(() => proj.forward(x)).dataSync()];
      return Array.from({ length: T }, (_, t) =>
        Array.from({ length: H }, (_, h) => values.slice((t * H + h) * K, (t * H + h + 1) * K)),
      );
    });
  const [q, k, v] = [rows(layer.qProj), rows(layer.kProj), rows(layer.vProj)];
  const mixed: number[] = [];
  for (let t = 0; t < T; t++)
    for (let h = 0; h < H; h++) {
      const query = q[t]![h]!.map(map);
      const sum = new Array<number>(K).fill(0);
      let total = 1e-6;
      for (let s = 0; s <= t; s++) {
        const key = k[s]![h]!.map(map);
        const weight = dot(turned(query, t, base), turned(key, s, base));
        total += dot(query, key);
        for (let c = 0; c < K; c++) sum[c]! += weight * v[s]![h]![c]!;
      }
      mixed.push(...sum.map((value) => value / total));
    }
  const weight = [...layer.oProj.weight.value.dataSync()];
  const expected = Array.from({ length: T * D }, (_, at) => {
    const [t, o] = [Math.floor(at / D), at % D];
    return dot(mixed.slice(t * H * K, (t + 1) * H * K), weight.slice(o * H * K, (o + 1) * H * K));
  });
  assertWithin(outputOf(layer, x), expected, 1e-13, "rotary linear attention");
});

test("a state of another mechanism or width is refused by name", () => {
  const make = (id: string, own: Record<string, unknown> = {}): Layer =>
    initialized(host, mechanism(id).layer({ width: 12, heads: 2, ...own }));
  const x = normalTensor(host, "x", [1, 3, 12]);
  const layer = make("gated-delta", { keyWidth: 6 });
  const feed = (other: Layer, length: number): unknown => {
    const states = new ModelState(host, [other], 1, 8);
    const input = normalTensor(host, "x", [1, length, 12]);
    return scope(host, () =>
      noGrad(() => layer.forward(input, contextOf({ state: states.view([0], length)[0]! }))),
    );
  };
  for (const length of [3, 1]) {
    assert.throws(() => feed(make("linear"), length), {
      code: "E_CONFIG",
      message: /\[gated-delta\] state has no part/,
    });
    assert.throws(() => feed(make("gated-delta", { keyWidth: 4 }), length), { code: "E_SHAPE" });
    assert.throws(() => feed(make("gated-delta", { keyWidth: 6, valueWidth: 5 }), length), {
      code: "E_SHAPE",
    });
    assert.throws(() => feed(make("gated-delta", { keyWidth: 6, convWidth: 3 }), length), {
      code: "E_SHAPE",
    });
  }
  assert.equal(outputOf(layer, x).length, 36, "the layer goes on");
});
