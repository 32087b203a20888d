/** Carried states where memory runs out: all of it moves, or nothing does. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { openWasm } from "../../src/device/index.ts";
import { Runner } from "../../src/generate/index.ts";
import { Decoder } from "../../src/models/decoder.ts";
import { initialize } from "../../src/nn/module.ts";
import { Random } from "../../src/tensor/random.ts";

const vocabulary = 11;

test("states that find no memory to grow stay as they are, and so do the sequences in them", async () => {
  for (const what of ["tokens", "slots"]) {
    for (let refused = 0; refused < 4; refused++) {
      let left = -1;
      const device = await openWasm({ threads: 1, poison: true, refuse: () => left >= 0 && left-- === 0 });
      const decoder = new Decoder({
        ...{ vocabularySize: vocabulary, width: 16, layers: 2, heads: 2, pattern: ["softmax"] },
      });
      initialize(decoder, device, new Random(3));
      const [runner, other] = [new Runner(decoder, device), new Runner(decoder, device)];
      const [slot, its] = [runner.takeSlot(), other.takeSlot()];
      const ids = Int32Array.from({ length: 64 }, (_, i) => (5 * i) % vocabulary);
      runner.advance([slot], ids, ids.length);
      other.advance([its], ids, ids.length);
      const { persistent } = device.info().bytes;
      const more = () =>
        what === "slots" ? runner.takeSlot() : runner.advance([slot], Int32Array.of(refused));
      left = refused;
      assert.throws(more, { code: "E_OUT_OF_MEMORY" }, `${what}, ${refused}`);
      assert.equal(device.info().bytes.persistent, persistent);
      assert.deepEqual([runner.states.slots, runner.states.room, runner.states.tokens(slot)], [1, 64, 64]);
      const further = [runner.takeSlot(), other.takeSlot()] as const;
      for (let i = 0; i < 5; i++) {
        const id = Int32Array.of(i, 7 - i);
        const wanted = other.advance([its, further[1]], id);
        assert.deepEqual(runner.advance([slot, further[0]], id), wanted, `${what}, ${refused}, step ${i}`);
      }
      device.close();
    }
  }
});

test("states without caches stay where they are, however long sequences get", async () => {
  const device = await openWasm({ threads: 1 });
  const decoder = new Decoder({
    ...{ vocabularySize: vocabulary, width: 16, layers: 1, heads: 2, pattern: ["linear"] },
  });
  initialize(decoder, device, new Random(3));
  const runner = new Runner(decoder, device);
  const slot = runner.takeSlot();
  const { version } = runner.states;
  for (let i = 0; i < 3; i++) runner.advance([slot], new Int32Array(60), 60);
  assert.equal(runner.states.version, version);
  device.close();
});
