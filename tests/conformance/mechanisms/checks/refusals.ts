import assert from "node:assert/strict";
import { scope } from "../../../../src/autograd/scope.ts";
import { isLinnetError } from "../../../../src/errors.ts";
import { withValueChecks } from "../../../../src/mechanisms/inputs.ts";
import type { Values } from "../../../../src/mechanisms/mechanism.ts";
import { cut, draw, hasTime, type Inputs, isCarried, mapValues, usual } from "../draw.ts";
import { type Call, type Check, differentiate, evaluate, type Subject, usualCall } from "../subject.ts";

interface Refusal {
  readonly what: string;
  readonly code: string;
  /** The name that the message must hold. */
  readonly names: string;
  readonly inputs: Inputs;
  readonly call?: Call;
  readonly values?: boolean;
}

/** What does not fit, for a mechanism. */
function* refusals({ mechanism }: Subject): Generator<Refusal> {
  const inputs = draw(mechanism);
  const { q, ...missing } = inputs as Inputs & { q: Values };
  yield { what: "an input is missing", code: "E_CONFIG", names: "q", inputs: missing };
  const unheard = { ...inputs, unheard: q };
  yield { what: "an input is not known", code: "E_CONFIG", names: "unheard", inputs: unheard };
  for (const [name, values] of Object.entries(inputs)) {
    const axes = axesOf(mechanism, name);
    const isShared = (axis: string): boolean =>
      Object.keys(inputs).some((other) => other !== name && axesOf(mechanism, other).includes(axis));
    const last = axes.length - 1;
    if (values.shape[last]! > 1 && isShared(axes[last]!)) {
      const narrow = { ...inputs, [name]: cut(values, last, 0, values.shape[last]! - 1) };
      yield { what: `${name} is narrower`, code: "E_SHAPE", names: name, inputs: narrow };
    }
    if (!hasTime(mechanism, name) || !mechanism.traits.causal) continue;
    const short = { ...inputs, [name]: cut(values, 1, 0, 5) };
    yield { what: `${name} is shorter`, code: "E_SHAPE", names: name, inputs: short };
  }
  yield* gates(inputs);
  if (mechanism.traits.causal) yield* lengths(mechanism, inputs);
}

const axesOf = (mechanism: Subject["mechanism"], name: string): readonly string[] =>
  mechanism.inputs[name]!.axes.split(" ");

function* gates(inputs: Inputs): Generator<Refusal> {
  for (const [name, bad] of [
    ["g", 0.1],
    ["beta", -0.1],
    ["beta", 2.5],
    ["v", Number.NaN],
  ] as const) {
    const values = inputs[name];
    if (values === undefined) continue;
    const changed = mapValues(values, (value, at) => (at === 3 ? bad : value));
    yield {
      ...{ what: `${name} is ${bad}`, code: "E_NUMERICS", names: name, values: true },
      inputs: { ...inputs, [name]: changed },
    };
  }
}

function* lengths(mechanism: Subject["mechanism"], inputs: Inputs): Generator<Refusal> {
  const bare = Object.fromEntries(Object.entries(inputs).filter(([name]) => !isCarried(mechanism, name)));
  const one = Object.fromEntries(
    Object.entries(bare).map(([name, values]) => [
      name,
      mechanism.inputs[name]!.axes.startsWith("B ") ? cut(values, 0, 0, 1) : values,
    ]),
  );
  const T = usual["T"]!;
  const packed = (cuSeqlens: readonly number[], given: Inputs, what: string): Refusal => ({
    ...{ what, code: "E_SHAPE", names: "cuSeqlens", inputs: given, call: { cuSeqlens } },
  });
  yield packed([0, T], bare, "packed sequences in two rows");
  yield packed([0, 9, 5, T], one, "lengths that descend");
  yield packed([0, 9], one, "lengths that end early");
  if (mechanism.inputs["v"]?.axes === "B T HV V" && mechanism.inputs["q"]?.axes === "B T H K") {
    const three = Object.entries(one).map(([name, values]) => {
      const axis = axesOf(mechanism, name).indexOf("HV");
      return [name, axis < 0 ? values : cut(values, axis, 0, 3)] as const;
    });
    yield {
      ...{ what: "value heads that do not group", code: "E_SHAPE", names: "HV" },
      inputs: Object.fromEntries(three),
    };
  }
}

export const refusalsCheck: Check = {
  name: "refuses",
  sentence: "A call that makes no sense is an error with its code that names who refuses what.",
  async run(subject) {
    const { mechanism, name, form, target } = subject;
    const device = await target.open(1);
    const before = device.info().bytes;
    const refuses = (what: string, code: string, word: string, call: () => unknown): void => {
      assert.throws(
        () => scope(device, call),
        (error) => {
          assert.ok(isLinnetError(error), `${what}: ${error}`);
          assert.equal(error.code, code, `${what}: ${error.message}`);
          assert.match(error.message, /^\[[\w.-]+\] /, what);
          assert.ok(error.message.includes(word), `${what}: does not name ${word}: ${error.message}`);
          return true;
        },
        what,
      );
    };
    for (const { what, code, names, inputs, call, values } of refusals(subject)) {
      const run = () => evaluate(device, form, inputs, { ...usualCall(mechanism), ...call });
      refuses(what, code, names, () => (values ? withValueChecks(run) : run()));
    }
    const inputs = draw(mechanism);
    if (name === "step")
      refuses("gradients of steps", "E_UNSUPPORTED", "step", () =>
        differentiate(device, mechanism, form, inputs, usualCall(mechanism)),
      );
    if (!mechanism.traits.full || name === "step") {
      refuses("causal: false", "E_UNSUPPORTED", "causal", () =>
        evaluate(device, form, inputs, { causal: false }),
      );
    }
    assert.equal(device.info().bytes.scoped, before.scoped);
  },
};
