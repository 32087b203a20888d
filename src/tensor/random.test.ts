import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { NumericsError, ShapeError } from "../errors.ts";
import { normalCdf } from "./normal-distribution.ts";
import { philoxKey, randomBits } from "./philox.ts";
import { Random } from "./random.ts";

/** Kolmogorov and Smirnov's distance times √n; above 1.95 in one sample of a thousand. */
function kolmogorovSmirnov(sample: Float64Array, cdf: (x: number) => number): number {
  const sorted = sample.slice().sort();
  let distance = 0;
  sorted.forEach((x, i) => {
    const p = cdf(x);
    distance = Math.max(distance, p - i / sorted.length, (i + 1) / sorted.length - p);
  });
  return distance * Math.sqrt(sorted.length);
}

/** The mean of x^power, and five standard errors for a sample of this length. */
function moment(sample: Float64Array, power: number): number {
  return sample.reduce((sum, x) => sum + x ** power, 0) / sample.length;
}

const length = 40_000;

test("uniform numbers have their distribution", () => {
  const sample = new Random(1).uniform(new Float64Array(length), -2, 3);
  assert.ok(kolmogorovSmirnov(sample, (x) => (x + 2) / 5) < 1.95);
  const unit = new Random(2).uniform(new Float64Array(length));
  for (const power of [1, 2, 3, 4]) {
    const expected = 1 / (power + 1);
    const error = Math.sqrt((1 / (2 * power + 1) - expected ** 2) / length);
    assert.ok(Math.abs(moment(unit, power) - expected) < 4 * error, `moment ${power}`);
  }
});

test("normal numbers have their distribution", () => {
  const sample = new Random(3).normal(new Float64Array(length));
  assert.ok(kolmogorovSmirnov(sample, normalCdf) < 1.95);
  // moments of even order 2n are (2n - 1)!!
  const moments = [0, 1, 0, 3, 0, 15, 0, 105];
  for (const power of [1, 2, 3, 4]) {
    const expected = moments[power - 1]!;
    const error = Math.sqrt((moments[2 * power - 1]! - expected ** 2) / length);
    assert.ok(Math.abs(moment(sample, power) - expected) < 4 * error, `moment ${power}`);
  }
  const moved = new Random(3).normal(new Float64Array(length), 5, 0.25);
  moved.forEach((x, i) => {
    assert.equal(x, 5 + 0.25 * sample[i]!);
  });
});

test("numbers that follow each other are uncorrelated, and so are neighbouring streams and seeds", () => {
  const sample = new Random(4).normal(new Float64Array(length));
  const others = [sample.subarray(1), sample.subarray(2), sample.subarray(512)];
  for (const random of [new Random(5), new Random(4, 1), new Random(4, "name")]) {
    others.push(random.normal(new Float64Array(length)));
  }
  for (const other of others) {
    const sum = other.reduce((total, x, i) => total + x * sample[i]!, 0);
    assert.ok(Math.abs(sum) < 4 * Math.sqrt(other.length));
  }
});

test("truncated normal numbers have their distribution, in the tails too", () => {
  for (const [mean, deviation, low, high] of [
    [0, 1, -2, 2],
    [0, 1, -1, 3],
    [1, 0.5, 3, 4],
    [0, 1, 8, 9],
    [0, 1, -30, -20],
    [0, 0.02, -0.04, Number.POSITIVE_INFINITY],
  ] as const) {
    const sample = new Random(6).truncatedNormal(new Float64Array(length), mean, deviation, low, high);
    const sign = low > mean ? -1 : 1;
    const cdf = (x: number) => normalCdf((sign * (x - mean)) / deviation);
    const [from, to] = [cdf(low), cdf(high)];
    assert.ok(kolmogorovSmirnov(sample, (x) => (cdf(x) - from) / (to - from)) < 1.95, `${low} to ${high}`);
    assert.ok(sample.every((x) => x >= low && x <= high));
  }
});

test("integers are equally frequent", () => {
  const sample = new Random(7).integers(new Int32Array(length), -3, 4);
  const counts = new Map<number, number>();
  for (const n of sample) counts.set(n, (counts.get(n) ?? 0) + 1);
  assert.deepEqual(
    [...counts.keys()].sort((a, b) => a - b),
    [-3, -2, -1, 0, 1, 2, 3],
  );
  const expected = length / 7;
  const chi = [...counts.values()].reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
  assert.ok(chi < 22.46, `${chi} has one chance in a thousand of 6 degrees of freedom`);
  const wide = new Random(8).integers(new Int32Array(1000), -(2 ** 31), 2 ** 31);
  assert.ok(wide.some((n) => n < -(2 ** 30)) && wide.some((n) => n > 2 ** 30));
});

test("a permutation holds every number once, and every order is equally frequent", () => {
  fc.assert(
    fc.property(fc.nat(200), fc.nat(), (count, seed) => {
      const order = new Random(seed).permutation(count);
      assert.deepEqual(
        order.slice().sort(),
        Int32Array.from({ length: count }, (_, i) => i),
      );
    }),
  );
  const counts = new Map<string, number>();
  const random = new Random(9);
  for (let i = 0; i < 6000; i++) {
    const key = random.permutation(3).join();
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const chi = [...counts.values()].reduce((sum, count) => sum + (count - 1000) ** 2 / 1000, 0);
  assert.ok(counts.size === 6 && chi < 20.52, `${chi} has one chance in a thousand of 5 degrees of freedom`);
});

test("a choice is the beginning of the permutation", () => {
  fc.assert(
    fc.property(fc.nat(1500), fc.nat(1500), fc.nat(), (a, b, seed) => {
      const [count, total] = a < b ? [a, b] : [b, a];
      assert.deepEqual(
        new Random(seed).choice(total, count),
        new Random(seed).permutation(total).slice(0, count),
      );
    }),
  );
});

test("orthogonal matrices are orthogonal, wide, tall and square, and uniformly distributed", () => {
  for (const [rows, columns] of [
    [3, 7],
    [7, 3],
    [16, 16],
    [1, 4],
    [0, 3],
  ] as const) {
    const matrix = new Random(10).orthogonal(new Float64Array(rows * columns), rows, columns, 3);
    const count = Math.min(rows, columns);
    const at = (i: number, n: number) =>
      rows > columns ? matrix[n * columns + i]! : matrix[i * columns + n]!;
    for (let i = 0; i < count; i++) {
      for (let j = 0; j < count; j++) {
        let sum = 0;
        for (let n = 0; n < Math.max(rows, columns); n++) sum += at(i, n) * at(j, n);
        assert.ok(Math.abs(sum - (i === j ? 9 : 0)) < 9 * 16 * 2 ** -52 * 4, `${rows} x ${columns}: ${sum}`);
      }
    }
  }
  // an element of a uniform rotation of the plane is the cosine of a uniform angle
  const sample = new Float64Array(4000);
  const random = new Random(11);
  for (let i = 0; i < sample.length; i++) sample[i] = random.orthogonal(new Float64Array(4), 2, 2)[3]!;
  assert.ok(kolmogorovSmirnov(sample, (x) => 1 - Math.acos(x) / Math.PI) < 1.95);
});

test("numbers are made from the words of philox as documented", () => {
  const random = new Random(12, "a", 5);
  const words = randomBits(new Uint32Array(4), philoxKey(12, "a"), 5);
  const pair = random.uniform(new Float64Array(2));
  assert.equal(pair[0], ((words[1]! >>> 12) * 2 ** 32 + words[0]! + 0.5) / 2 ** 52);
  assert.equal(pair[1], ((words[3]! >>> 12) * 2 ** 32 + words[2]! + 0.5) / 2 ** 52);
  assert.deepEqual(random.state, { seed: 12, stream: "a", position: 6 });
});

test("the same bits everywhere: a fingerprint of every distribution", () => {
  const random = new Random(2024, "fingerprint");
  const parts = [
    random.uniform(new Float64Array(1000)),
    random.normal(new Float64Array(100_000)),
    random.truncatedNormal(new Float64Array(1000), 0, 1, -1, 5),
    random.integers(new Int32Array(1000), 0, 1000),
    random.permutation(100),
    random.orthogonal(new Float64Array(64), 8, 8),
    random.bits(new Uint32Array(5)),
  ];
  const fingerprint = parts.map((part) => {
    const words = new Uint32Array(part.buffer);
    return words.reduce((hash, word) => Math.imul(hash ^ word, 0x01000193), 0x811c9dc5) >>> 0;
  });
  assert.deepEqual(
    fingerprint,
    [4008123871, 3473664279, 480164281, 229702546, 3906632357, 1585258428, 1430568482],
  );
});

test("float32 arrays get the rounded numbers of float64 arrays", () => {
  const wide = new Random(13).normal(new Float64Array(1001));
  assert.deepEqual(new Random(13).normal(new Float32Array(1001)), Float32Array.from(wide));
});

test("uniform numbers never reach the upper end, in either dtype", () => {
  for (const [low, high] of [
    [0, 1],
    [-1, 0],
    [-3, -2],
    [16777216, 16777217],
    [0.1, 0.1 + 2 ** -53],
  ] as const) {
    for (const target of [new Float32Array(2000), new Float64Array(2000)]) {
      assert.ok(
        new Random(14).uniform(target, low, high).every((x) => x < high),
        `${low} to ${high}`,
      );
    }
  }
});

test("a state goes on where it was taken, through JSON", () => {
  const random = new Random(15, "train");
  random.normal(new Float32Array(777));
  const copy = Random.from(JSON.parse(JSON.stringify(random.state)));
  assert.equal(copy.next(), random.next());
  assert.deepEqual(copy.permutation(50), random.permutation(50));
  assert.equal(copy.fork("x").next(), new Random(15, "x").next());
  assert.notEqual(random.next(), random.next());
});

test("arguments out of range are refused", () => {
  const random = new Random(0);
  const one = new Float64Array(1);
  const bad: (() => unknown)[] = [
    () => new Random(-1),
    () => new Random(0, 0.5),
    () => new Random(0, 0, Number.NaN),
    () => random.uniform(one, 1, 1),
    () => random.uniform(one, 0, Number.POSITIVE_INFINITY),
    () => random.normal(one, Number.NaN),
    () => random.normal(one, 0, -1),
    () => random.truncatedNormal(one, 0, 1, 2, 1),
    () => random.truncatedNormal(one, 0, 1, 50, 60),
    () => random.truncatedNormal(one, 0, 0),
    () => random.integers(new Int32Array(1), 1, 1),
    () => random.integers(new Int32Array(1), 0, 2 ** 31 + 1),
    () => random.integers(new Int32Array(1), 0.5, 3),
    () => random.permutation(-1),
    () => random.choice(3, 4),
  ];
  for (const call of bad) assert.throws(call, NumericsError, `${call}`);
  assert.throws(() => random.choice(3, 4), {
    code: "E_NUMERICS",
    message: "[Random] count out of range: expected a whole number from 0 to 3, got 4",
  });
  assert.throws(() => random.orthogonal(one, 2, 2), ShapeError);
  assert.deepEqual(random.state, { seed: 0, stream: 0, position: 0 });
});

test("empty requests draw nothing", () => {
  const random = new Random(0);
  random.normal(new Float32Array(0));
  random.permutation(0);
  random.bits(new Uint32Array(0));
  assert.equal(random.state.position, 0);
});
