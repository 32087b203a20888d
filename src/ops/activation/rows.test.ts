import assert from "node:assert/strict";
import { test } from "node:test";
import { activationRows } from "./rows.ts";

test("activation: softplus and logSigmoid keep the last bits of float64 at large arguments", () => {
  const { softplus, logSigmoid } = activationRows;
  // log(1 + exp(x)) = x + exp(−x) − exp(−2x)/2 + …; the second term is the last that float64 sees above 20.
  for (const x of [20.5, 21, 25, 30, 33]) {
    const truth = x + Math.exp(-x);
    assert.equal(softplus.value(x), truth, `softplus(${x})`);
    assert.equal(logSigmoid.value(-x), -truth, `logSigmoid(${-x})`);
    assert.ok(softplus.value(x) > x, `${x} is not reached yet`);
    assert.ok(Math.abs(softplus.value(-x) / Math.exp(-x) - 1) < 2e-9, `softplus(${-x})`);
  }
  assert.equal(softplus.value(Infinity), Infinity);
  assert.equal(softplus.value(-Infinity), 0);
  assert.ok(Number.isNaN(softplus.value(Number.NaN)));
});
