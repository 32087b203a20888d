/** Mechanisms on plain arrays: every form of every mechanism, shapes that follow from sizes, what is refused. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasmSync } from "../../src/device/wasm/open.ts";
import { formNames } from "../../src/mechanisms/mechanism.ts";
import { mechanism, mechanisms } from "../../src/mechanisms/registry.ts";
import { runMechanism } from "../../src/mechanisms/run.ts";
import { draw, usual } from "../conformance/mechanisms/draw.ts";
import { agree, formOf, hasCache, outputBound, usualCall } from "../conformance/mechanisms/subject.ts";

const host = hostDevice({ dtype: "float64" });
const wasm = openWasmSync({ tier: "a", threads: 1, poison: true });
after(() => {
  host.close();
  wasm.close();
});

const plain = (results: Awaited<ReturnType<typeof runMechanism>>) =>
  Object.fromEntries(
    Object.entries(results).map(([name, { data, shape }]) => [
      name,
      { data: Float64Array.from(data), shape },
    ]),
  );

for (const own of mechanisms) {
  test(`${own.id} runs on arrays with shapes in every form that it has`, async () => {
    const inputs = draw(own, usual, { carried: !hasCache(own) });
    const expected = own.reference(inputs, usualCall(own));
    for (const form of formNames.filter((name) => formOf(own, name) !== undefined)) {
      for (const device of [host, wasm]) {
        const before = device.info().bytes.scoped;
        const results = await runMechanism(own.id, inputs, { device, form, ...usualCall(own) });
        agree(plain(results), expected, outputBound(own, usual), form);
        assert.equal(device.info().bytes.scoped, before, "nothing is left on the device");
      }
    }
  });

  test(`${own.id} gives bare arrays the shapes that sizes say`, async () => {
    const inputs = draw(own, usual, { carried: !hasCache(own) });
    const bare = Object.fromEntries(
      Object.entries(inputs).map(([name, { data }]) => [name, Float32Array.from(data)]),
    );
    const sizes = { ...usual, ...own.ownAxes?.(usual) };
    const shaped = await runMechanism(own, inputs, { device: host, ...usualCall(own) });
    assert.deepEqual(await runMechanism(own, bare, { device: host, sizes, ...usualCall(own) }), shaped);
  });
}

test("what sizes leave open follows from the lengths of the arrays", async () => {
  const sizes = { B: 1, H: 2, K: 4, V: 3 };
  const inputs = { q: new Float32Array(40), k: new Float32Array(40), v: new Float32Array(30) };
  const { output, finalState } = await runMechanism("cosine", inputs, { device: host, sizes });
  assert.deepEqual(output!.shape, [1, 5, 2, 3]);
  assert.deepEqual(finalState!.shape, [1, 2, 4, 3]);
});

test("packed sequences and masks go in as numbers, the state of each sequence comes out", async () => {
  const own = mechanism("gated-delta");
  const inputs = draw(own, { ...usual, B: 1, T: 12 }, { carried: false });
  const packed = await runMechanism(own, inputs, { device: host, cuSeqlens: [0, 5, 12] });
  assert.deepEqual(packed["finalState"]!.shape, [2, 4, 10, 7]);
  const mask = Int32Array.from({ length: 12 }, (_, t) => Number(t >= 5));
  const padded = await runMechanism(own, inputs, { device: host, mask: { data: mask, shape: [1, 12] } });
  const tail = 7 * 4 * 7;
  assert.deepEqual(padded["output"]!.data.slice(-tail), packed["output"]!.data.slice(-tail));
  assert.ok(padded["output"]!.data.slice(0, -tail).every((value) => value === 0));
});

test("arrays that do not fit are refused by name", async () => {
  const sizes = { B: 1, T: 5, H: 2, K: 4, V: 3 };
  const fine = { q: new Float32Array(40), k: new Float32Array(40), v: new Float32Array(30) };
  const call = (inputs: Record<string, unknown>, own: Record<string, unknown> = {}) =>
    runMechanism("cosine", inputs as typeof fine, { device: host, sizes, ...own });
  await assert.rejects(runMechanism("cosin", fine, { device: host, sizes }), { code: "E_CONFIG" });
  await assert.rejects(call({ ...fine, k: new Float32Array(39) }), {
    code: "E_SHAPE",
    message: /k .*40.*39/,
  });
  await assert.rejects(call({ q: fine.q, k: fine.k }), { code: "E_CONFIG", message: /input v is missing/ });
  await assert.rejects(call({ ...fine, x: fine.q }), { code: "E_CONFIG", message: /x is not known/ });
  await assert.rejects(call(fine, { sizes: { B: 1, T: 5 } }), {
    code: "E_CONFIG",
    message: /axis [HK] of q/,
  });
  const other = { data: new Float32Array(32), shape: [1, 4, 2, 4] };
  await assert.rejects(call({ ...fine, k: other }), { code: "E_SHAPE", message: /T/ });
  await assert.rejects(call(fine, { cuSeqlens: [0, 4, 3, 5] }), { code: "E_SHAPE", message: /ascends/ });
  const softmax = runMechanism("softmax", fine, { device: host, sizes, form: "recurrent" });
  await assert.rejects(softmax, { code: "E_UNSUPPORTED", message: /no form recurrent/ });
});
