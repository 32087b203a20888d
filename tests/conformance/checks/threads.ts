import assert from "node:assert/strict";
import { type Check, type Result, runCase, type Subject } from "../suite.ts";

async function resultOf(subject: Subject, threads: number): Promise<Result> {
  return runCase(await subject.target.open(threads), subject.entry, subject.case);
}

export const threadsCheck: Check = {
  name: "threads",
  sentence: "One, two and three threads give the same bits.",
  applies: (subject) => subject.case.fails === undefined && subject.target.name !== "host",
  async run(subject) {
    const alone = await resultOf(subject, 1);
    for (const threads of [2, 3]) {
      assert.deepEqual(await resultOf(subject, threads), alone, `with ${threads} threads`);
    }
  },
};

export const determinismCheck: Check = {
  name: "determinism",
  sentence: "The same call gives the same bits again.",
  applies: (subject) => subject.case.fails === undefined && subject.target.name !== "host",
  async run(subject) {
    assert.deepEqual(await resultOf(subject, 2), await resultOf(subject, 2));
  },
};
