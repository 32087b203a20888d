import assert from "node:assert/strict";
import { test } from "node:test";
import { tensor } from "../../autograd/tensor.ts";
import { hostDevice } from "../../device/host/host.ts";
import { Random } from "../../tensor/random.ts";
import { mixtureOutput, type PixelOutput, softmaxOutput } from "./output.ts";

/** Probabilities of all values by the loss that trains them. */
function probabilities(output: PixelOutput, row: Float32Array): number[] {
  const device = hostDevice();
  return Array.from({ length: 256 }, (_, value) => {
    const outputs = tensor(device, row, [1, output.width]);
    const values = tensor(device, Int32Array.of(value), [1], { dtype: "int32" });
    return Math.exp(-output.loss(outputs, values).dataSync()[0]!);
  });
}

/** A row of outputs with mass at both ends and in between. */
function rowOf(output: PixelOutput): Float32Array {
  const random = new Random(11, output.id);
  if (output.id === "softmax") return random.normal(new Float32Array(256), 0, 1.5);
  const row = random.normal(new Float32Array(output.width), 0, 0.7);
  for (let i = 20; i < 30; i++) row[i]! -= 2;
  return row;
}

for (const output of [mixtureOutput, softmaxOutput]) {
  test(`draws of ${output.id} follow the distribution that its loss names`, () => {
    const row = rowOf(output);
    const expected = probabilities(output, row);
    assert.ok(Math.abs(expected.reduce((sum, p) => sum + p, 0) - 1) < 1e-6);
    const draws = 200_000;
    const uniforms = new Random(2).uniform(new Float64Array(2 * draws));
    const counts = new Float64Array(256);
    for (let i = 0; i < draws; i++)
      counts[output.sample(row, [uniforms[2 * i]!, uniforms[2 * i + 1]!], 1)]!++;
    let chi = 0;
    let cells = 0;
    for (const [value, p] of expected.entries()) {
      if (p * draws < 5) continue;
      chi += (counts[value]! - p * draws) ** 2 / (p * draws);
      cells++;
    }
    // Chi squared has mean `cells` and deviation sqrt(2 cells): five of them are one in millions.
    assert.ok(cells > 50);
    assert.ok(chi < cells + 5 * Math.sqrt(2 * cells), `chi squared ${chi} of ${cells} cells`);
  });

  test(`temperature 0 of ${output.id} draws the same whatever the chance`, () => {
    const row = rowOf(output);
    assert.equal(output.sample(row, [0.01, 0.99], 0), output.sample(row, [0.99, 0.01], 0));
  });
}
