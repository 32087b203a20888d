import assert from "node:assert/strict";
import { test } from "node:test";
import type { Device } from "../device/device.ts";
import { openWasm } from "../device/index.ts";
import type { DecoderConfig } from "../models/config.ts";
import { Decoder } from "../models/decoder.ts";
import { initialize } from "../nn/module.ts";
import { Random } from "../tensor/random.ts";
import { Runner } from "./runner.ts";

const vocabulary = 11;

function runnerOn(device: Device, id: string): Runner {
  const decoder = new Decoder({ vocabularySize: vocabulary, width: 16, layers: 2, heads: 2, pattern: [id] });
  initialize(decoder, device, new Random(3));
  return new Runner(decoder, device);
}

/** The same device with another way of recording; without one every step is done anew. */
function recordingBy(device: Device, record: Device["record"]): Device {
  return new Proxy(device, {
    get: (target, name) => {
      if (name === "record") return record;
      const value = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

test("planned steps have the bits of steps done anew, whatever happens to the rows in between", async () => {
  const device = await openWasm({ threads: 1, poison: true });
  for (const id of ["linear", "gated-delta", "mamba2", "retention", "softmax"]) {
    const planned = runnerOn(device, id);
    const anew = new Runner(planned.decoder, recordingBy(device, undefined));
    const random = new Random(7);
    const rows: [number, number][] = [];
    for (let round = 0; round < 40; round++) {
      if (rows.length === 0 || (rows.length < 4 && random.next() < 0.2)) {
        rows.push([planned.takeSlot(), anew.takeSlot()]);
      } else if (random.next() < 0.1) {
        const [a, b] = rows.splice(Math.floor(random.next() * rows.length), 1)[0]!;
        planned.giveSlot(a);
        anew.giveSlot(b);
      }
      if (rows.length === 0) continue;
      const ids = Int32Array.from(rows, () => Math.floor(random.next() * vocabulary));
      const got = planned.advance(
        rows.map(([slot]) => slot),
        ids,
      );
      const wanted = anew.advance(
        rows.map(([, slot]) => slot),
        ids,
      );
      assert.deepEqual(got, wanted, `${id} round ${round}`);
    }
    planned.dispose();
  }
  device.close();
});

test("steps that ask for positions are planned too, past the ends of their tables and after a sequence went back", async () => {
  const device = await openWasm({ threads: 1, poison: true });
  const latent = { id: "latent-attention", latentWidth: 8 };
  const models: readonly Pick<DecoderConfig, "pattern" | "positions">[] = [
    { pattern: ["retention"] },
    { pattern: [{ id: "linear", rotaryBase: 100 }] },
    { pattern: ["gated-delta", "softmax"], positions: { kind: "rotary" } },
    { pattern: ["softmax"], positions: { kind: "sinusoidal" } },
    { pattern: ["linear"], positions: { kind: "learned", length: 150 } },
    { pattern: [{ id: "softmax", window: 9 }] },
    { pattern: [latent] },
    { pattern: ["performer"] },
  ];
  for (const model of models) {
    const decoder = new Decoder({
      ...{ vocabularySize: vocabulary, width: 16, layers: 2, heads: 2 },
      ...model,
    });
    initialize(decoder, device, new Random(3));
    let replays = 0;
    const record: NonNullable<Device["record"]> = (fn) => {
      const made = device.record!(fn);
      const replay = made.recording.replay.bind(made.recording);
      const counting = () => {
        replays++;
        replay();
      };
      return { ...made, recording: Object.assign(made.recording, { replay: counting }) };
    };
    const planned = new Runner(decoder, recordingBy(device, record));
    const anew = new Runner(decoder, recordingBy(device, undefined));
    const slots = [planned.takeSlot(), planned.takeSlot()];
    const others = [anew.takeSlot(), anew.takeSlot()];
    const random = new Random(7);
    for (let round = 0; round < 150; round++) {
      if (round === 30) {
        planned.states.copy(slots[0]!, slots[1]!);
        anew.states.copy(others[0]!, others[1]!);
      }
      if (round === 90) {
        planned.states.reset(slots[0]!);
        anew.states.reset(others[0]!);
      }
      const ids = Int32Array.from(slots, () => Math.floor(random.next() * vocabulary));
      assert.deepEqual(
        planned.advance(slots, ids),
        anew.advance(others, ids),
        `${JSON.stringify(model)} round ${round}`,
      );
    }
    assert.ok(replays > 120, `nearly all of 150 steps are done from a plan, got ${replays}`);
    planned.dispose();
  }
  device.close();
});

test("a plan notices new weights, and takes no fresh memory from step to step", async () => {
  const device = await openWasm({ threads: 1 });
  const runner = runnerOn(device, "linear");
  const slot = runner.takeSlot();
  const ids = Int32Array.of(5);
  for (let i = 0; i < 4; i++) runner.advance([slot], ids);
  const { dispatches, allocations } = device.info();
  runner.advance([slot], ids);
  assert.equal(device.info().allocations, allocations);
  assert.ok(device.info().dispatches > dispatches);
  const { weight } = runner.decoder.embedding;
  weight.set(device, new Float32Array(weight.size).fill(0.25));
  const other = runner.takeSlot();
  const changed = runner.advance([other], ids)[0]!;
  const fresh = runner.takeSlot();
  assert.deepEqual(runner.advance([fresh], ids)[0], changed);
  assert.equal(new Set(changed).size > 1, true);
  device.close();
});

test("plans are kept by how lately they were used, those that take much memory not at all", async () => {
  const device = await openWasm({ threads: 1 });
  let records = 0;
  const counted = recordingBy(device, (fn) => {
    records++;
    return device.record!(fn);
  });
  const runner = runnerOn(counted, "linear");
  const slots = Array.from({ length: 17 }, () => runner.takeSlot());
  const step = (rows: number): number => {
    const before = records;
    runner.advance(slots.slice(0, rows), new Int32Array(rows));
    return records - before;
  };
  for (let rows = 1; rows <= 17; rows++) for (let n = 0; n < 2; n++) assert.equal(step(rows), n);
  assert.deepEqual([step(17), step(2), step(1), step(2), step(3)], [0, 0, 1, 0, 1]);
  const { persistent } = device.info().bytes;
  const wide = new Decoder({ vocabularySize: 300_000, width: 8, layers: 1, heads: 1, pattern: ["linear"] });
  initialize(wide, device, new Random(3));
  const large = new Runner(wide, counted);
  const rows = Array.from({ length: 16 }, () => large.takeSlot());
  const ask = (count: number) => large.advance(rows.slice(0, count), new Int32Array(count));
  for (let i = 0; i < 3; i++) ask(16);
  const held = device.info().bytes.persistent;
  const before = records;
  for (let i = 0; i < 3; i++) ask(16);
  assert.deepEqual([device.info().bytes.persistent, records], [held, before]);
  for (let i = 0; i < 6; i++) for (let count = 15; count > 12; count--) ask(count);
  assert.ok(records > before, "fewer rows have plans");
  assert.ok(device.info().bytes.persistent - persistent < 16 * 1.2e6 + 3 * 2 ** 24);
  device.close();
});

test("a step that finds no memory for its plan leaves none behind, and steps are done anew when that goes on", async () => {
  let refuses = false;
  const device = await openWasm({ threads: 1, refuse: (bytes) => refuses && bytes === 4 * vocabulary });
  const runner = runnerOn(device, "linear");
  const slot = runner.takeSlot();
  const step = () => runner.advance([slot], Int32Array.of(5));
  step();
  const { persistent } = device.info().bytes;
  refuses = true;
  assert.throws(step, { code: "E_OUT_OF_MEMORY" });
  assert.equal(device.info().bytes.persistent, persistent);
  refuses = false;
  for (let i = 0; i < 3; i++) step();
  device.close();
});

test("a recording says when it cannot be done again, and ends with its operands", async () => {
  const device = await openWasm({ threads: 1 });
  const storage = device.allocatePersistent("float32", 4);
  const target = { storage, offset: 0 };
  const values = Float32Array.of(1, 2, 3, 4);
  const written = device.record!(() => device.write(target, values));
  device.write(target, new Float32Array(4));
  written.recording.replay();
  assert.deepEqual(device.readSync(target, 4), values);
  const read = device.record!(() => device.readSync(target, 4));
  assert.equal(read.recording.repeatable, false);
  assert.throws(() => read.recording.replay(), { code: "E_UNSUPPORTED" });
  device.release(storage);
  assert.throws(() => written.recording.replay(), { code: "E_DISPOSED" });
  const before = device.info().bytes.persistent;
  const owner = device.record!(() => device.allocate("float32", 1000));
  assert.ok(device.info().bytes.persistent > before);
  owner.recording.dispose();
  assert.equal(device.info().bytes.persistent, before);
  assert.equal(owner.result.alive, false);
  device.close();
});

test("a step beyond the last learned position is refused, planned or not, and the sequence stays as it was", async () => {
  const device = await openWasm({ threads: 1 });
  const positions = { kind: "learned", length: 6 } as const;
  const decoder = new Decoder({
    ...{ vocabularySize: vocabulary, width: 16, layers: 1, heads: 2, pattern: ["linear"], positions },
  });
  initialize(decoder, device, new Random(3));
  const runner = new Runner(decoder, device);
  const slot = runner.takeSlot();
  const step = () => runner.advance([slot], Int32Array.of(5))[0]!;
  for (let i = 0; i < 6; i++) assert.ok(step().every(Number.isFinite));
  for (let i = 0; i < 3; i++) {
    assert.throws(step, { message: /has learned 6 positions, the text needs 7/ });
    assert.equal(runner.states.tokens(slot), 6);
  }
  runner.states.reset(slot);
  assert.ok(step().every(Number.isFinite));
  runner.dispose();
  device.close();
});
