/** Broken copies of an op, each wrong in one way: the check that is there for it must notice. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { copyInto } from "../../src/autograd/move.ts";
import { apply, type Op } from "../../src/autograd/tape.ts";
import { empty, full, Tensor } from "../../src/autograd/tensor.ts";
import { exp } from "../../src/ops/activation/index.ts";
import type { OpCase, OpEntry } from "../../src/ops/op.ts";
import { sum } from "../../src/ops/reduce/index.ts";
import { scaled } from "../../src/ops/scale/index.ts";
import { finiteDifferencesCheck } from "./checks/finite-differences.ts";
import { gradientsCheck } from "./checks/gradients.ts";
import { offsetCheck } from "./checks/layouts.ts";
import { leaksCheck } from "./checks/leaks.ts";
import { refusalsCheck } from "./checks/refusals.ts";
import { determinismCheck, threadsCheck } from "./checks/threads.ts";
import { valuesCheck } from "./checks/values.ts";
import type { Check, Target } from "./suite.ts";
import { closeTargets, hostTarget, wasmTarget } from "./targets.ts";

type Double = Op<{ x: Tensor }, undefined, { y: Tensor }>;

const sound: Double = {
  name: "double",
  forward: ({ x }) => ({ outputs: { y: scaled(x, 2) }, saved: undefined }),
  backward: ({ grads: { y } }) => ({ x: y && scaled(y, 2) }),
};

const rows: OpCase<undefined> = {
  name: "n=17",
  inputs: { x: { shape: [17] } },
  options: undefined,
  terms: 1,
};

function entryOf(op: Partial<Double>, opCase: OpCase<undefined> = rows): OpEntry {
  const whole = { ...sound, ...op };
  return {
    kind: "op",
    name: "double",
    kernels: [],
    run: ({ x }) => apply(whole, { x: x! }, undefined),
    cases: [opCase],
  };
}

/** What a kernel would do that stops one element early: the last stays as the memory was. */
function allButTheLast(x: Tensor): Tensor {
  const y = empty(x.device, x.shape, { dtype: x.dtype });
  const head = (tensor: Tensor): Tensor => new Tensor(tensor.layout, [x.size - 1]);
  copyInto(head(y), head(scaled(x, 2)));
  return y;
}

/** Adds 0 times the element behind the last one: harmless next to numbers, NaN next to NaN. */
function peeking(x: Tensor): Tensor {
  const y = scaled(x, 2);
  const { storage, offset } = x.layout;
  if (offset + x.size >= storage.length) return y;
  const behind = new Tensor({ storage, offset: offset + x.size, strides: [1] }, [1]);
  const last = new Tensor({ ...y.layout, offset: y.layout.offset + x.size - 1 }, [1]);
  copyInto(last, scaled(behind, 1));
  return y;
}

let calls = 0;

const saboteurs: readonly (readonly [fault: string, check: Check, target: Target, entry: OpEntry])[] = [
  [
    "a value that differs between devices",
    valuesCheck,
    hostTarget,
    entryOf({
      forward: ({ x }) => ({
        outputs: { y: scaled(x, x.dtype === "float32" ? 2.00001 : 2) },
        saved: undefined,
      }),
    }),
  ],
  [
    "an unwritten tail",
    valuesCheck,
    wasmTarget("a"),
    entryOf({ forward: ({ x }) => ({ outputs: { y: allButTheLast(x) }, saved: undefined }) }),
  ],
  [
    "a peek at a neighbour",
    offsetCheck,
    wasmTarget("a"),
    entryOf({ forward: ({ x }) => ({ outputs: { y: peeking(x) }, saved: undefined }) }),
  ],
  ["a missing gradient", finiteDifferencesCheck, hostTarget, entryOf({ backward: () => ({}) })],
  [
    "a wrong gradient",
    finiteDifferencesCheck,
    hostTarget,
    entryOf({ backward: ({ grads: { y } }) => ({ x: y && scaled(y, 2.0001) }) }),
  ],
  [
    "a gradient that differs between devices",
    gradientsCheck,
    wasmTarget("a"),
    entryOf({ backward: ({ grads: { y } }) => ({ x: y && scaled(y, y.dtype === "float32" ? 2.0001 : 2) }) }),
  ],
  [
    "dependence on the number of threads",
    threadsCheck,
    wasmTarget("a"),
    entryOf({
      forward: ({ x }) => ({ outputs: { y: scaled(x, x.device.info().threads) }, saved: undefined }),
    }),
  ],
  [
    "dependence on what ran before",
    determinismCheck,
    wasmTarget("a"),
    entryOf({ forward: ({ x }) => ({ outputs: { y: scaled(x, ++calls) }, saved: undefined }) }),
  ],
  [
    "a leak",
    leaksCheck,
    wasmTarget("a"),
    entryOf({
      forward: ({ x }) => {
        kept.push(full(x.device, [256], 0, { persistent: true }));
        return { outputs: { y: scaled(x, 2) }, saved: undefined };
      },
    }),
  ],
  [
    "a call that should fail and does not",
    refusalsCheck,
    hostTarget,
    entryOf({}, { ...rows, fails: "E_SHAPE" }),
  ],
  [
    "an error that names no argument",
    refusalsCheck,
    hostTarget,
    entryOf(
      {
        forward: () => {
          throw new RangeError("no");
        },
      },
      { ...rows, fails: "E_SHAPE" },
    ),
  ],
];

const kept: Tensor[] = [];

for (const [fault, check, target, entry] of saboteurs) {
  test(`sabotage: ${fault} is noticed`, async () => {
    const subject = { entry, case: entry.cases[0]!, target };
    assert.notEqual(check.applies?.(subject), false, "the check is about another subject");
    await assert.rejects(async () => check.run(subject), { name: "AssertionError" });
  });
}

test("sabotage: the sound op passes every check that notices a broken one", async () => {
  for (const [, check, target] of saboteurs) {
    if (check === refusalsCheck) continue;
    const entry = entryOf({});
    await check.run({ entry, case: entry.cases[0]!, target });
  }
});

test("sabotage: composed ops pass too", async () => {
  const entry: OpEntry = {
    ...entryOf({}),
    run: ({ x }) => ({ y: sum(exp(x!)) }),
    cases: [{ ...rows, terms: 17 }],
  };
  for (const check of [valuesCheck, gradientsCheck, threadsCheck]) {
    await check.run({ entry, case: entry.cases[0]!, target: wasmTarget("a") });
  }
});

after(closeTargets);
