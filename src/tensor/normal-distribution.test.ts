import assert from "node:assert/strict";
import { test } from "node:test";
import { normalCdf, normalQuantile, portableExp, portableLog } from "./normal-distribution.ts";

const epsilon = 2 ** -52;

function assertClose(actual: number, expected: number, units: number, what: string): void {
  const error = Math.abs(actual - expected) / Math.max(Math.abs(expected), 2 ** -1022);
  assert.ok(error <= units * epsilon, `${what}: ${actual} for ${expected}`);
}

test("logarithm and exponential agree with the engine's to a few units in the last place", () => {
  for (let i = 1; i < 4000; i++) {
    assertClose(portableLog(i / 2000), Math.log(i / 2000), 4, `log ${i / 2000}`);
    const wide = 1.4 ** (i - 2000);
    if (wide > 2 ** -1022 && wide < 2 ** 1023)
      assertClose(portableLog(wide), Math.log(wide), 2, `log ${wide}`);
    assertClose(portableExp(-i * 0.18), Math.exp(-i * 0.18), 4, `exp ${-i * 0.18}`);
  }
  assert.equal(portableLog(1), 0);
  assert.equal(portableExp(0), 1);
  assert.equal(portableExp(-800), 0);
});

test("normal quantiles agree with forty digits", () => {
  const known = [
    [1e-300, -37.0470962993612],
    [1e-100, -21.273453560965326],
    [1e-20, -9.262340089798407],
    [1e-10, -6.361340902404057],
    [1e-5, -4.264890793922825],
    [0.01, -2.326347874040841],
    [0.0745, -1.4430726743709008],
    [0.075, -1.439531470938456],
    [0.3, -0.5244005127080408],
    [0.925, 1.4395314709384561],
    [0.975, 1.9599639845400538],
    [0.999, 3.090232306167813],
  ] as const;
  for (const [p, x] of known) assertClose(normalQuantile(p), x, 5, `quantile ${p}`);
  assert.equal(normalQuantile(0.5), 0);
});

test("normal probabilities agree with forty digits", () => {
  const known = [
    [-37, 5.725571222524577e-300],
    [-20, 2.7536241186062337e-89],
    [-8, 6.220960574271784e-16],
    [-5, 2.866515718791939e-7],
    [-3, 0.0013498980316300946],
    [-2.4, 0.008197535924596131],
    [-1, 0.15865525393145705],
    [-0.5, 0.3085375387259869],
    [0.5, 0.6914624612740131],
    [1, 0.8413447460685429],
    [2, 0.9772498680518208],
    [3, 0.9986501019683699],
    [6, 0.9999999990134123],
  ] as const;
  // the exponent -x²/2 is off by half a unit of itself, the series loses to 1/2 what lies between
  for (const [x, p] of known) assertClose(normalCdf(x), p, Math.max((x * x) / 2, 0.5 / p) * 2, `cdf ${x}`);
  assert.equal(normalCdf(0), 0.5);
  assert.equal(normalCdf(-40), 0);
  assert.equal(normalCdf(40), 1);
});

test("quantile and probability undo each other on both sides of every seam", () => {
  for (let x = -8; x <= 5; x += 1 / 64) {
    const p = normalCdf(x);
    const density = Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
    // p is known to within epsilon (of itself on the left), x hence to within that over the density
    const slack = (16 * epsilon * Math.max(p, x < -2.5 ? 0 : 0.5)) / density + 16 * epsilon * Math.abs(x);
    assert.ok(Math.abs(normalQuantile(p) - x) <= slack, `${x}: ${normalQuantile(p)}`);
  }
});
