import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Device, Kernel, Storage } from "../../device.ts";
import { openWasm } from "../open.ts";

const unused = (): void => assert.fail("the block products run on the wasm device");
const productKernel: Kernel = { key: "block.product.forward", host: unused };
const transposeKernel: Kernel = { key: "block.transpose.forward", host: unused };

const shapes = ["gemmBlock", "gemmLower", "gemmLowerLeft", "gemmUpperLeft"] as const;
type Shape = (typeof shapes)[number];

/** A device and one piece of its memory that holds all operands, at offsets that are aligned to nothing. */
interface Bed {
  readonly device: Device;
  readonly storage: Storage;
  readonly floats: Float32Array;
}
const size = 8192;
const at = { a: 1, b: 1027, c: 3075 };

const beds: Bed[] = [];
before(async () => {
  for (const tier of ["a", "b", "c"] as const) {
    const device = await openWasm({ tier, threads: 1 });
    beds.push({
      device,
      storage: device.allocatePersistent("float32", size),
      floats: new Float32Array(size),
    });
  }
});
after(() => {
  for (const { device } of beds) device.close();
});

interface Product {
  readonly shape: Shape;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly mode: number;
  readonly transposed: boolean;
}

/** Strides in floats of a product's operands, with gaps. */
function stridesOf({ m, n, k, transposed }: Product) {
  const a = transposed ? { aRow: 1, aInner: m + 1 } : { aRow: k + 3, aInner: 1 };
  return { ...a, bRow: n + 2, cRow: n + 5 };
}

const isZero = (shape: Shape, i: number, p: number): boolean =>
  (shape === "gemmLowerLeft" && p > i) || (shape === "gemmUpperLeft" && p < i);

const numbers = Float32Array.from({ length: size }, () => Math.random() - 0.5);

/** Random operands everywhere, also in the gaps of C, so that a stray store shows. */
function fill({ device, storage, floats }: Bed, product: Product): void {
  const { m, k, shape } = product;
  const { aRow, aInner } = stridesOf(product);
  floats.set(numbers);
  for (let i = 0; i < m; i++) {
    for (let p = 0; p < k; p++) if (isZero(shape, i, p)) floats[at.a + i * aRow + p * aInner] = 0;
  }
  device.write({ storage, offset: 0 }, floats);
}

/** A piece of a product: first row, column and step, how many of each, and the mode. */
interface Part {
  readonly i?: number;
  readonly j?: number;
  readonly p?: number;
  readonly m?: number;
  readonly n?: number;
  readonly k?: number;
  readonly mode?: number;
}

/** Computes a piece of a product in place. */
function run({ device, storage }: Bed, product: Product, part: Part = {}): void {
  const { aRow, aInner, bRow, cRow } = stridesOf(product);
  const { i = 0, j = 0, p = 0, mode = product.mode } = part;
  const { m = product.m - i, n = product.n - j, k = product.k - p } = part;
  device.run({
    kernel: productKernel,
    buffers: [
      { storage, offset: at.a + i * aRow + p * aInner },
      { storage, offset: at.b + p * bRow + j },
      { storage, offset: at.c + i * cRow + j },
    ],
    ints: [shapes.indexOf(product.shape), m, n, k, aRow, aInner, bRow, cRow, mode],
    floats: [],
    units: 1,
    work: m * n * k,
    scratchBytes: 0,
  });
}

const all = ({ device, storage }: Bed): Float32Array =>
  device.readSync({ storage, offset: 0 }, size) as Float32Array;

const sameBits = (x: Float32Array, y: Float32Array): boolean =>
  Buffer.from(x.buffer).equals(Buffer.from(y.buffer));

/** Every element of C within its bound; then C is put back as it was, and all else must be as it was. */
function check(bed: Bed, product: Product): void {
  const { shape, m, n, k, mode } = product;
  const { aRow, aInner, bRow, cRow } = stridesOf(product);
  fill(bed, product);
  run(bed, product);
  const { floats } = bed;
  const got = all(bed);
  for (let i = 0; i < m; i++) {
    for (let j = 0; j < n; j++) {
      const place = at.c + i * cRow + j;
      let want = mode === 0 ? 0 : floats[place]!;
      let terms = Math.abs(want);
      for (let p = 0; p < k; p++) {
        const term = floats[at.a + i * aRow + p * aInner]! * floats[at.b + p * bRow + j]!;
        want += mode === 2 ? -term : term;
        terms += Math.abs(term);
      }
      const untouched = shape === "gemmLower" && j > i && got[place] === floats[place];
      if (!untouched && !(Math.abs(got[place]! - want) <= 2 ** -24 * (k + 1) * terms)) {
        assert.fail(`${JSON.stringify(product)} at ${i}, ${j}: expected ${want}, got ${got[place]}`);
      }
      got[place] = floats[place]!;
    }
  }
  assert.ok(sameBits(got, floats), `${JSON.stringify(product)} wrote outside of C`);
}

const products: readonly Product[] = shapes.flatMap((shape) =>
  [0, 1, 2, 3, 5, 6, 7, 11, 17].flatMap((m) =>
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 18, 33].flatMap((n) =>
      [0, 1, 2, 7].flatMap((k) =>
        [0, 1, 2].flatMap((mode) =>
          [false, true].map((transposed) => ({ shape, m, n, k, mode, transposed })),
        ),
      ),
    ),
  ),
);

test("block products add up right for every remainder, stride and mode, and write nothing else", () => {
  for (const bed of beds) for (const product of products) check(bed, product);
});

/** The bits of C after some other way to compute the same. */
function assertSame(bed: Bed, product: Product, parts: readonly Part[]): void {
  const { device, storage, floats } = bed;
  device.write({ storage, offset: 0 }, floats);
  run(bed, product);
  const want = all(bed);
  device.write({ storage, offset: 0 }, floats);
  for (const part of parts) run(bed, product, part);
  assert.ok(sameBits(all(bed), want), `${JSON.stringify(product)} in parts ${JSON.stringify(parts[0])} …`);
}

test("an element has the same bits wherever it falls in a tile and however its chain is cut", () => {
  for (const bed of beds) {
    for (const product of products.filter(({ shape, k }) => shape === "gemmBlock" && k > 0)) {
      const { m, n, k, mode } = product;
      fill(bed, product);
      assertSame(
        bed,
        product,
        Array.from({ length: m }, (_, i) => ({ i, m: 1 })),
      );
      assertSame(
        bed,
        product,
        Array.from({ length: n }, (_, j) => ({ j, n: 1 })),
      );
      const half = k >> 1;
      if (mode < 2) assertSame(bed, product, [{ k: half }, { p: half, mode: 1 }]);
    }
  }
});

test("a block transposes for every remainder and writes nothing else", () => {
  for (const { device, storage } of beds) {
    for (const rows of [0, 1, 3, 4, 5, 8, 13]) {
      for (const cols of [0, 1, 2, 4, 7, 9, 16]) {
        const [srcRow, dstRow] = [cols + 3, rows + 2];
        const floats = Float32Array.from({ length: size }, (_, i) => i);
        device.write({ storage, offset: 0 }, floats);
        device.run({
          kernel: transposeKernel,
          buffers: [at.a, at.c].map((offset) => ({ storage, offset })),
          ints: [rows, cols, srcRow, dstRow],
          floats: [],
          units: 1,
          work: rows * cols,
          scratchBytes: 0,
        });
        for (let j = 0; j < cols; j++) {
          for (let i = 0; i < rows; i++) floats[at.c + j * dstRow + i] = at.a + i * srcRow + j;
        }
        assert.deepEqual(device.readSync({ storage, offset: 0 }, size), floats, `${rows}x${cols}`);
      }
    }
  }
});
