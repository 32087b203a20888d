import assert from "node:assert/strict";
import { after, test } from "node:test";
import { gradients, noGrad } from "../../autograd/tape.ts";
import { type Tensor, tensor } from "../../autograd/tensor.ts";
import { type Device, hostDevice, openWasm } from "../../device/index.ts";
import { sizeOf } from "../../tensor/shape.ts";
import { transpose } from "../permute/index.ts";
import { part } from "../split/index.ts";
import { linearPacked, matmul, matmulEntry, packWeights } from "./index.ts";

const eps = 2 ** -24;
const host = hostDevice({ dtype: "float64" });
const tiers = ["a", "b"] as const;
const devices: { readonly name: string; readonly tier: string; readonly device: Device }[] = [];
for (const tier of tiers) {
  for (const threads of [1, 2, 3]) {
    const device = await openWasm({ tier, threads, poison: true });
    devices.push({ name: `tier ${tier}, ${threads} threads`, tier, device });
  }
}
after(() => {
  for (const { device } of devices) device.close();
});

/** The same values on every device: a fixed sequence of numbers that float32 holds exactly. */
function values(size: number, seed: number): Float32Array {
  let state = seed * 2654435761 + 12345;
  return Float32Array.from({ length: size }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >> 8) / 2 ** 23;
  });
}

const make = (device: Device, shape: readonly number[], seed: number, requiresGrad = false): Tensor =>
  tensor(device, values(sizeOf(shape), seed), shape, { requiresGrad });

function relativeError(got: ArrayLike<number>, want: ArrayLike<number>): number {
  assert.equal(got.length, want.length);
  let difference = 0;
  let size = 0;
  for (let i = 0; i < want.length; i++) {
    difference += (got[i]! - want[i]!) ** 2;
    size += want[i]! ** 2;
  }
  return size === 0 ? Math.sqrt(difference) : Math.sqrt(difference / size);
}

/** Bit for bit, zeros of both signs told apart. */
function assertSameBits(got: Tensor, want: Tensor, what?: string): void {
  const [x, y] = [got, want].map((each) => each.dataSync() as Float32Array);
  const bytes = (array: Float32Array): Buffer =>
    Buffer.from(array.buffer, array.byteOffset, array.byteLength);
  assert.ok(bytes(x!).equals(bytes(y!)), what);
}

const successes = matmulEntry.cases.filter((each) => each.fails === undefined);

/** The output of a case and the gradients of its inputs, for a fixed incoming gradient. */
function outcomes(device: Device, which: (typeof successes)[number]): Record<string, ArrayLike<number>> {
  const inputs: Record<string, Tensor> = {};
  for (const [i, [name, spec]] of Object.entries(which.inputs).entries()) {
    inputs[name] = make(device, spec.shape, i + 1, true);
  }
  const { y } = matmulEntry.run(inputs, which.options) as { y: Tensor };
  const grads = gradients(y, Object.values(inputs), [make(device, y.shape, 9)]);
  const found: Record<string, ArrayLike<number>> = { y: y.dataSync() };
  for (const [i, name] of Object.keys(inputs).entries()) found[name] = grads[i]!.dataSync();
  return found;
}

for (const { name, device } of devices) {
  test(`products and their gradients agree with float64 loops on ${name}`, () => {
    for (const each of successes) {
      const got = outcomes(device, each);
      const want = outcomes(host, each);
      for (const part of Object.keys(want)) {
        const terms = part === "y" ? each.terms : each.gradientTerms![part]!;
        const error = relativeError(got[part]!, want[part]!);
        assert.ok(error <= 8 * eps * Math.sqrt(terms), `${each.name} ${part}: ${error}`);
      }
    }
  });
}

const bitShapes = [
  { m: 13, n: 37, k: 29 },
  { m: 250, n: 150, k: 300 },
  { m: 170, n: 300, k: 70 },
  { m: 97, n: 129, k: 513 },
];

for (const { name, tier, device } of devices) {
  test(`a row has the same bits alone and among others on ${name}`, () => {
    for (const { m, n, k } of bitShapes) {
      for (const transposeB of [false, true]) {
        const a = make(device, [m, k], 1);
        const b = make(device, transposeB ? [n, k] : [k, n], 2);
        const bias = make(device, [n], 3);
        const all = matmul(a, b, { transposeB, bias });
        for (const i of [0, 1, m >> 1, m - 1]) {
          const alone = matmul(part(a, 0, i, 1), b, { transposeB, bias });
          assertSameBits(alone, part(all, 0, i, 1), `row ${i} of ${m}x${n}x${k}`);
        }
        const first = devices.find((other) => other.tier === tier)!.device;
        const again = matmul(make(first, a.shape, 1), make(first, b.shape, 2), {
          transposeB,
          bias: make(first, [n], 3),
        });
        assertSameBits(all, again, "one thread");
      }
    }
  });

  test(`packed weights give the bits of unpacked ones on ${name}`, () => {
    for (const { m, n, k } of [
      ...bitShapes,
      { m: 1, n: 100, k: 40 },
      { m: 2, n: 7, k: 1 },
      { m: 5, n: 64, k: 600 },
    ]) {
      const x = make(device, [m, k], 1);
      const weight = make(device, [n, k], 2);
      const bias = make(device, [n], 3);
      const packed = packWeights(weight);
      const want = matmul(x, weight, { transposeB: true, bias });
      const got = noGrad(() => linearPacked(x, packed, bias));
      assertSameBits(got, want, `${m}x${n}x${k}`);
      const turned = packWeights(transpose(make(device, [k, n], 4), 0, 1));
      const plain = matmul(x, make(device, [k, n], 4));
      assertSameBits(
        noGrad(() => linearPacked(x, turned)),
        plain,
        `turned ${m}x${n}x${k}`,
      );
      packed.panels.dispose();
      turned.panels.dispose();
    }
  });

  test(`views of wider tensors need no copy on ${name}`, () => {
    const wide = make(device, [2, 19, 40], 1);
    const b = make(device, [2, 23, 30], 2);
    const a = part(wide, 2, 5, 23);
    const before = device.info().dispatches;
    const y = matmul(a, part(b, 2, 7, 11));
    const z = matmul(transpose(a, 1, 2), part(wide, 2, 3, 9));
    assert.equal(device.info().dispatches, before + 2);
    const reference = matmul(
      tensor(device, a.dataSync(), a.shape),
      tensor(device, part(b, 2, 7, 11).dataSync(), [2, 23, 11]),
    );
    assertSameBits(y, reference);
    const other = matmul(
      tensor(device, a.dataSync(), a.shape),
      tensor(device, part(wide, 2, 3, 9).dataSync(), [2, 19, 9]),
      {
        transposeA: true,
      },
    );
    assertSameBits(z, other);
  });
}

test("a shared weight makes one dispatch of a stack, forward and backward", () => {
  const { device } = devices[0]!;
  const x = make(device, [3, 5, 7], 1, true);
  const weight = make(device, [4, 7], 2, true);
  const before = device.info().dispatches;
  const y = matmul(x, weight, { transposeB: true });
  assert.equal(device.info().dispatches, before + 1);
  gradients(y, [x, weight], [make(device, y.shape, 3)]);
  assert.equal(device.info().dispatches, before + 3);
});

test("a single column has the bits of the same column among others", () => {
  for (const { device } of devices) {
    const a = make(device, [65, 33], 1);
    const b = make(device, [33, 20], 2);
    assertSameBits(matmul(a, part(b, 1, 4, 1)), part(matmul(a, b), 1, 4, 1));
  }
});

test("packed weights refuse a gradient", () => {
  const x = make(host, [2, 3], 1, true);
  const y = linearPacked(x, packWeights(make(host, [4, 3], 2)));
  assert.throws(() => gradients(y, [x], [make(host, [2, 4], 3)]), { code: "E_UNSUPPORTED" });
});

test("packed weights name the axis that does not fit", () => {
  const packed = packWeights(make(host, [4, 3], 2));
  assert.throws(() => linearPacked(make(host, [2, 5], 1), packed), {
    code: "E_SHAPE",
    message: /\[linearPacked\].*in=3/,
  });
});
