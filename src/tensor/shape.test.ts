import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ShapeError } from "../errors.ts";
import {
  broadcastShapes,
  broadcastStrides,
  checkShape,
  formatShape,
  normalizeAxis,
  sameShape,
  sizeOf,
  stridesOf,
} from "./shape.ts";

const shapes = fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 4 });

test("sizes and strides of shapes", () => {
  assert.equal(sizeOf([]), 1);
  assert.equal(sizeOf([2, 3, 4]), 24);
  assert.equal(sizeOf([2, 0, 4]), 0);
  assert.deepEqual(stridesOf([2, 3, 4]), [12, 4, 1]);
  assert.deepEqual(stridesOf([]), []);
  assert.ok(sameShape([2, 3], [2, 3]) && !sameShape([2, 3], [2]) && !sameShape([2, 3], [3, 2]));
  assert.equal(formatShape([2, 3, 4], ["B", "", "K"]), "[B=2, 3, K=4]");
});

test("shapes that are no sizes are refused", () => {
  assert.deepEqual(checkShape("zeros", [0, 2]), [0, 2]);
  for (const shape of [
    [-1],
    [1.5],
    [Number.NaN],
    [Number.POSITIVE_INFINITY],
    [2 ** 30, 2 ** 30],
    [2 ** 53],
  ]) {
    assert.throws(() => checkShape("zeros", shape), ShapeError, `${shape}`);
  }
});

test("broadcasting is symmetric and reads the element that stretching by hand reads", () => {
  fc.assert(
    fc.property(shapes, fc.infiniteStream(fc.boolean()), fc.nat(4), (target, ones, drop) => {
      const shape = target.slice(Math.min(drop, target.length)).map((size) => (ones.next().value ? 1 : size));
      const common = broadcastShapes("add", shape, target);
      assert.deepEqual(common, target);
      assert.deepEqual(broadcastShapes("add", target, shape), target);
      const strides = broadcastStrides(shape, target);
      const own = stridesOf(shape);
      for (let element = 0; element < sizeOf(target); element++) {
        const index = stridesOf(target).map((stride, axis) => Math.floor(element / stride) % target[axis]!);
        const offset = index.reduce((sum, position, axis) => sum + position * strides[axis]!, 0);
        const shift = target.length - shape.length;
        const byHand = shape.reduce(
          (sum, size, axis) => sum + (size === 1 ? 0 : index[axis + shift]! * own[axis]!),
          0,
        );
        assert.equal(offset, byHand);
      }
    }),
  );
});

test("shapes that do not broadcast are refused with both", () => {
  assert.throws(() => broadcastShapes("add", [2, 3], [2, 4]), {
    code: "E_SHAPE",
    message:
      "[add] operands do not broadcast: expected equal sizes or 1 from the last axis on, got [2, 3] and [2, 4]",
  });
});

test("axes count from either end", () => {
  assert.equal(normalizeAxis(-1, 3, "sum"), 2);
  assert.equal(normalizeAxis(0, 3, "sum"), 0);
  assert.throws(() => normalizeAxis(3, 3, "sum"), {
    message: "[sum] axis does not exist: expected a whole number from -3 to 2, got 3",
  });
  for (const axis of [-4, 0.5, Number.NaN]) assert.throws(() => normalizeAxis(axis, 3, "sum"), ShapeError);
  assert.throws(() => normalizeAxis(0, 0, "sum"), ShapeError);
});
