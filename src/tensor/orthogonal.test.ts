import assert from "node:assert/strict";
import { test } from "node:test";
import { orthonormalize } from "./orthogonal.ts";

function product(a: Float64Array, b: Float64Array, count: number, length: number): Float64Array {
  const sums = new Float64Array(count * count);
  for (let i = 0; i < count; i++) {
    for (let j = 0; j < count; j++) {
      for (let n = 0; n < length; n++) sums[i * count + j]! += a[i * length + n]! * b[j * length + n]!;
    }
  }
  return sums;
}

test("rows come out orthonormal, spanning what they spanned, with a positive diagonal", () => {
  for (const [count, length] of [
    [1, 1],
    [3, 3],
    [4, 9],
    [5, 5],
    [17, 17],
    [33, 65],
  ] as const) {
    const rows = Float64Array.from({ length: count * length }, (_, i) => Math.sin(i * i + 1));
    const basis = rows.slice();
    orthonormalize(basis, count, length);
    const bound = 8 * 2 ** -52 * Math.sqrt(length);
    product(basis, basis, count, length).forEach((value, i) => {
      const expected = i % (count + 1) === 0 ? 1 : 0;
      assert.ok(Math.abs(value - expected) <= bound, `${count} x ${length} at ${i}: ${value}`);
    });
    const triangle = product(rows, basis, count, length);
    for (let i = 0; i < count; i++) {
      assert.ok(triangle[i * count + i]! > 0);
      for (let j = i + 1; j < count; j++) {
        assert.ok(Math.abs(triangle[i * count + j]!) <= bound * length, `row ${i} against later row ${j}`);
      }
    }
  }
});

test("nearly parallel rows come out orthonormal", () => {
  const length = 12;
  const rows = Float64Array.from(
    { length: 12 * length },
    (_, i) => 1 / ((i % length) + Math.floor(i / length) + 1),
  );
  orthonormalize(rows, 8, length); // the rows of a Hilbert matrix, condition 1e10 and more
  product(rows, rows, 8, length).forEach((value, i) => {
    assert.ok(Math.abs(value - (i % 9 === 0 ? 1 : 0)) <= 8 * 2 ** -52 * Math.sqrt(length), `${i}: ${value}`);
  });
});
