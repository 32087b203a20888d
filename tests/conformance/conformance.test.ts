/** Every op × case × device × check, under a name of words: `npm test -- "rms-norm wasm-b gradients"`. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import * as all from "../../src/ops/all.ts";
import { isOpEntry, type OpEntry } from "../../src/ops/op.ts";
import { checks } from "./checks/all.ts";
import { title, words } from "./suite.ts";
import { closeTargets, targets } from "./targets.ts";

const entries: OpEntry[] = (Object.values(all) as unknown[]).filter(isOpEntry);

for (const target of await targets()) {
  for (const entry of entries) {
    for (const opCase of entry.cases) {
      for (const check of checks) {
        const subject = { entry, case: opCase, target };
        if (check.applies?.(subject) === false) continue;
        test(title(check, subject), () => check.run(subject));
      }
    }
  }
}

for (const entry of entries) {
  test(`${words(entry.name)} has a case with a zero-length axis`, () => {
    const isEmpty = (shape: readonly number[]) => shape.includes(0);
    assert.ok(entry.cases.some(({ inputs }) => Object.values(inputs).some(({ shape }) => isEmpty(shape))));
  });
}

after(closeTargets);
