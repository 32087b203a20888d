import assert from "node:assert/strict";
import { type Check, runCase } from "../suite.ts";

export const leaksCheck: Check = {
  name: "leaks",
  sentence: "After the scope of a call, forward and backward, the device holds what it held before.",
  applies: (subject) => subject.case.fails === undefined && subject.target.name !== "host",
  async run(subject) {
    const device = await subject.target.open(1);
    const before = device.info().bytes;
    runCase(device, subject.entry, subject.case);
    const after = device.info().bytes;
    assert.equal(after.scoped, before.scoped);
    assert.equal(after.persistent, before.persistent);
  },
};
