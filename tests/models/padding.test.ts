/** Rows of different lengths in one call: what follows them does not see the padding. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { scope } from "../../src/autograd/scope.ts";
import { noGrad } from "../../src/autograd/tape.ts";
import { tensor } from "../../src/autograd/tensor.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { Decoder } from "../../src/models/decoder.ts";
import { initialize } from "../../src/nn/module.ts";
import { Random } from "../../src/tensor/random.ts";

test("a model goes on after rows that were padded as after rows that were not", () => {
  const device = hostDevice({ dtype: "float64", poison: true });
  const model = new Decoder({
    ...{ vocabularySize: 11, width: 16, layers: 3, heads: 2, positions: { kind: "rotary" } },
    pattern: ["softmax", "retention", { id: "latent-attention", sharedKeyWidth: 4 }],
  });
  initialize(model, device, new Random(1));
  const ints = (values: readonly number[], shape: number[]) =>
    tensor(device, values, shape, { dtype: "int32" });
  const texts = [
    [1, 2, 3, 4, 5],
    [6, 7, 8],
  ];
  const nextOf = (run: (states: ReturnType<Decoder["createState"]>) => void): number[][] =>
    scope(device, () =>
      noGrad(() => {
        const states = model.createState(device, 2);
        run(states);
        assert.deepEqual([states.tokens(0), states.tokens(1)], [5, 3]);
        const { logits } = model.forward(ints([9, 10], [2, 1]), { state: { states, slots: [0, 1] } });
        const values = [...logits.dataSync()];
        states.dispose();
        return [values.slice(0, 11), values.slice(11)];
      }),
    );
  const alone = nextOf((states) => {
    for (const [slot, text] of texts.entries())
      model.forward(ints(text, [1, text.length]), { state: { states, slots: [slot] } });
  });
  const padded = nextOf((states) => {
    const tokens = ints([...texts[0]!, 0, 0, ...texts[1]!], [2, 5]);
    const mask = ints([1, 1, 1, 1, 1, 0, 0, 1, 1, 1], [2, 5]);
    model.forward(tokens, { state: { states, slots: [0, 1] }, mask });
  });
  const packed = nextOf((states) => {
    const cuSeqlens = ints([0, 5, 8], [3]);
    model.forward(ints(texts.flat(), [1, 8]), { state: { states, slots: [0, 1] }, cuSeqlens });
  });
  for (const got of [padded, packed]) {
    for (const [row, values] of alone.entries()) {
      const error = values.reduce((most, value, i) => Math.max(most, Math.abs(value - got[row]![i]!)), 0);
      assert.ok(error <= 1e-12, `row ${row} is off by ${error}`);
    }
  }
  device.close();
});
