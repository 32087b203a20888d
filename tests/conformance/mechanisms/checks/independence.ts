import assert from "node:assert/strict";
import type { Values } from "../../../../src/mechanisms/mechanism.ts";
import { cut, draw, mapInputs, usual } from "../draw.ts";
import { type Check, differentiate, evaluate, type Results, type Subject, usualCall } from "../subject.ts";

export const batchCheck: Check = {
  name: "batch",
  sentence: "A row of a batch alone gives the same bits.",
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    const inputs = draw(mechanism);
    const whole = evaluate(device, form, inputs, usualCall(mechanism));
    for (let b = 0; b < usual["B"]!; b++) {
      const row = (values: Values): Values => cut(values, 0, b, b + 1);
      const own = mapInputs(inputs, (values, name) =>
        mechanism.inputs[name]!.axes.startsWith("B ") ? row(values) : values,
      );
      const alone = evaluate(device, form, own, usualCall(mechanism));
      for (const name in alone) assert.deepEqual(alone[name], row(whole[name]!), `${name} of row ${b}`);
    }
  },
};

/** The part of an array that belongs to one group of heads. */
function groupOf(axes: readonly string[], values: Values, group: number, groups: number): Values {
  const axis = axes.findIndex((name) => ["H", "HV", "HQ", "HKV"].includes(name));
  if (axis < 0) return values;
  const each = values.shape[axis]! / groups;
  return cut(values, axis, group * each, (group + 1) * each);
}

export const headsCheck: Check = {
  name: "heads",
  sentence: "A key head with its value heads alone gives the same bits.",
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    const inputs = draw(mechanism);
    const whole = evaluate(device, form, inputs, usualCall(mechanism));
    const groups = usual["H"]!;
    for (let group = 0; group < groups; group++) {
      const own = mapInputs(inputs, (values, name) =>
        groupOf(mechanism.inputs[name]!.axes.split(" "), values, group, groups),
      );
      const alone = evaluate(device, form, own, usualCall(mechanism));
      const parts = Object.values(mechanism.state);
      for (const [name, values] of Object.entries(whole)) {
        const axes = parts.find((part) => part.output === name)?.axes ?? "B T HV V";
        assert.deepEqual(
          alone[name],
          groupOf(axes.split(" "), values, group, groups),
          `${name} of group ${group}`,
        );
      }
    }
  },
};

function everything({ mechanism, name, form }: Subject, device: Parameters<typeof evaluate>[0]): Results[] {
  const inputs = draw(mechanism);
  const outputs = evaluate(device, form, inputs, usualCall(mechanism));
  return name === "step"
    ? [outputs]
    : [outputs, differentiate(device, mechanism, form, inputs, usualCall(mechanism))];
}

export const threadsCheck: Check = {
  name: "threads",
  sentence: "One, two and three threads give the same bits, forward and backward.",
  applies: ({ target }) => target.name !== "host",
  async run(subject) {
    const alone = everything(subject, await subject.target.open(1));
    for (const threads of [2, 3]) {
      assert.deepEqual(everything(subject, await subject.target.open(threads)), alone, `${threads} threads`);
    }
  },
};

export const determinismCheck: Check = {
  name: "determinism",
  sentence: "The same call gives the same bits again.",
  async run(subject) {
    const device = await subject.target.open(2);
    assert.deepEqual(everything(subject, device), everything(subject, device));
  },
};

export const leaksCheck: Check = {
  name: "leaks",
  sentence: "After the scope of a call, forward and backward, the device holds what it held before.",
  applies: ({ target }) => target.name !== "host",
  async run(subject) {
    const device = await subject.target.open(1);
    const before = device.info().bytes;
    everything(subject, device);
    const after = device.info().bytes;
    assert.equal(after.scoped, before.scoped);
    assert.equal(after.persistent, before.persistent);
  },
};
