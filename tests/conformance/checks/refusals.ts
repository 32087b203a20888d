import assert from "node:assert/strict";
import { scope } from "../../../src/autograd/scope.ts";
import { isLinnetError } from "../../../src/errors.ts";
import { type Check, placeInputs } from "../suite.ts";

export const refusalsCheck: Check = {
  name: "refuses",
  sentence: "A call that makes no sense is an error with its code that names who refuses which argument.",
  applies: (subject) => subject.case.fails !== undefined,
  async run({ entry, case: opCase, target }) {
    const device = await target.open(1);
    const before = device.info().bytes;
    const call = () =>
      scope(device, () => entry.run(placeInputs(device, entry, opCase, "dense"), opCase.options));
    assert.throws(call, (error) => {
      assert.ok(isLinnetError(error), `${error}`);
      assert.equal(error.code, opCase.fails);
      assert.match(error.message, /^\[[\w.]+\] /);
      const arguments_ = [...Object.keys(opCase.inputs), ...Object.keys(opCase.options ?? {}), "operands"];
      assert.ok(
        arguments_.some((name) => error.message.includes(name)),
        `names no argument: ${error.message}`,
      );
      return true;
    });
    assert.equal(device.info().bytes.scoped, before.scoped);
  },
};
