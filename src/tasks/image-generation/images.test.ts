import assert from "node:assert/strict";
import { test } from "node:test";
import { Random } from "../../tensor/random.ts";
import { imagesFromIdx } from "./idx.ts";
import {
  chooseImages,
  fromSequences,
  type Images,
  neighbourPlaces,
  toSequences,
  valuesOf,
} from "./images.ts";
import { printImages, sheetOf } from "./sheet.ts";

const colour = { height: 2, width: 3, channels: 3 } as const;

function noise(shape: Images["shape"], count: number): Images {
  const values = random().integers(new Int32Array(count * valuesOf(shape)), 0, 256);
  return { shape, pixels: Uint8Array.from(values) };
}

const random = (): Random => new Random(5);

test("images come back from their sequences in both channel orders", () => {
  const images = noise(colour, 4);
  for (const order of ["interleaved", "planar"] as const) {
    const back = fromSequences(colour, order, toSequences(images, order));
    assert.deepEqual(back.pixels, images.pixels);
  }
});

test("a planar sequence holds all of a channel before the next", () => {
  const pixels = Uint8Array.from({ length: 18 }, (_, i) => 10 * Math.floor(i / 3) + (i % 3));
  const planar = toSequences({ shape: colour, pixels }, "planar");
  assert.deepEqual([...planar.slice(0, 7)], [0, 10, 20, 30, 40, 50, 1]);
});

test("neighbours stay inside the image and the channel", () => {
  const [left, left2, aboveLeft, above, aboveRight, above2] = neighbourPlaces(
    { height: 3, width: 3, channels: 1 },
    "interleaved",
  );
  assert.deepEqual([...left!], [-1, 0, 1, -1, 3, 4, -1, 6, 7]);
  assert.deepEqual([...left2!], [-1, -1, 0, -1, -1, 3, -1, -1, 6]);
  assert.deepEqual([...aboveLeft!], [-1, -1, -1, -1, 0, 1, -1, 3, 4]);
  assert.deepEqual([...above!], [-1, -1, -1, 0, 1, 2, 3, 4, 5]);
  assert.deepEqual([...aboveRight!], [-1, -1, -1, 1, 2, -1, 4, 5, -1]);
  assert.deepEqual([...above2!], [-1, -1, -1, -1, -1, -1, 0, 1, 2]);
  const planar = neighbourPlaces(colour, "planar")[3]!;
  assert.deepEqual([...planar.slice(3, 10)], [0, 1, 2, -1, -1, -1, 6]);
  const interleaved = neighbourPlaces(colour, "interleaved")[3]!;
  assert.deepEqual([...interleaved.slice(9, 12)], [0, 1, 2]);
});

test("sequences that make no whole images are refused", () => {
  assert.throws(() => fromSequences(colour, "planar", new Uint8Array(19)), /multiple of 18, got 19/);
});

test("chosen images bring their labels", () => {
  const images = { ...noise(colour, 3), labels: Uint8Array.of(4, 5, 6) };
  const chosen = chooseImages(images, [2, 0]);
  assert.deepEqual([...chosen.labels!], [6, 4]);
  assert.deepEqual(chosen.pixels.subarray(0, 18), images.pixels.subarray(36, 54));
});

/** An IDX file of bytes. */
function idx(shape: readonly number[], values: readonly number[]): Uint8Array {
  const lengths = shape.flatMap((length) => [0, 0, length >> 8, length & 255]);
  return Uint8Array.from([0, 0, 8, shape.length, ...lengths, ...values]);
}

test("idx files give images and labels", () => {
  const images = imagesFromIdx(idx([2, 1, 2], [1, 2, 3, 4]), idx([2], [7, 9]), "digits");
  assert.deepEqual(images.shape, { height: 1, width: 2, channels: 1 });
  assert.deepEqual([...images.pixels], [1, 2, 3, 4]);
  assert.deepEqual([...images.labels!], [7, 9]);
});

test("idx files that are cut short or do not belong together are refused", () => {
  assert.throws(() => imagesFromIdx(idx([2, 1, 2], [1, 2, 3]), idx([2], [7, 9]), "digits"), {
    code: "E_FORMAT",
    message: /expected 20 bytes, got 19/,
  });
  assert.throws(() => imagesFromIdx(idx([2, 1, 1], [1, 2]), idx([3], [7, 9, 1]), "digits"), {
    code: "E_FORMAT",
  });
  assert.throws(() => imagesFromIdx(Uint8Array.of(1, 2, 3), idx([0], []), "digits"), { code: "E_FORMAT" });
});

for (const channels of [1, 3] as const) {
  test(`sheets of ${channels} channels hold the images where they say`, () => {
    const shape = { height: 4, width: 5, channels };
    const images = noise(shape, 5);
    const picture = sheetOf(images, { columns: 3, scale: 2, gap: 1, background: 9 });
    assert.equal(picture.width, 3 * 11 + 1);
    assert.equal(picture.height, 2 * 9 + 1);
    assert.equal(picture.channels, channels);
    for (let n = 0; n < 5; n++) {
      for (let y = 0; y < 8; y++) {
        for (let x = 0; x < 10; x++) {
          const at = (1 + Math.floor(n / 3) * 9 + y) * picture.width + 1 + (n % 3) * 11 + x;
          const from = n * 20 + Math.floor(y / 2) * 5 + Math.floor(x / 2);
          for (let c = 0; c < channels; c++)
            assert.equal(picture.pixels[at * channels + c], images.pixels[from * channels + c]);
        }
      }
    }
    assert.equal(picture.pixels[0], 9);
  });
}

test("a sheet of no images or no columns is refused", () => {
  assert.throws(() => sheetOf(noise(colour, 0)), /no images/);
  assert.throws(() => sheetOf(noise(colour, 2), { columns: 0 }), /columns/);
});

test("images printed as letters show bright pixels as dense letters", () => {
  const shape = { height: 2, width: 4, channels: 1 } as const;
  const pixels = Uint8Array.of(0, 255, 0, 255, 0, 255, 255, 255);
  assert.equal(printImages({ shape, pixels }), " @+@");
});
