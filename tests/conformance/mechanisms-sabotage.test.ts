/** Broken mechanisms, each wrong in one way: the check that is there for it must notice. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type Tensor, type Tensors, tensor } from "../../src/autograd/tensor.ts";
import type { Form, FormName, Mechanism } from "../../src/mechanisms/mechanism.ts";
import { mechanism as find } from "../../src/mechanisms/registry.ts";
import { add } from "../../src/ops/arithmetic/index.ts";
import { concat } from "../../src/ops/concat/index.ts";
import { mean } from "../../src/ops/reduce/index.ts";
import { scaled } from "../../src/ops/scale/index.ts";
import { part } from "../../src/ops/split/index.ts";
import { Random } from "../../src/tensor/random.ts";
import { extremesCheck } from "./mechanisms/checks/extremes.ts";
import { gradientsCheck } from "./mechanisms/checks/gradients.ts";
import {
  batchCheck,
  determinismCheck,
  headsCheck,
  leaksCheck,
  threadsCheck,
} from "./mechanisms/checks/independence.ts";
import { refusalsCheck } from "./mechanisms/checks/refusals.ts";
import {
  carryCheck,
  futureCheck,
  packingCheck,
  paddingCheck,
  prefixCheck,
} from "./mechanisms/checks/streaming.ts";
import {
  chunksCheck,
  driftCheck,
  fullCheck,
  oddSizesCheck,
  valuesCheck,
} from "./mechanisms/checks/values.ts";
import { weightsCheck } from "./mechanisms/checks/weights.ts";
import { normalizedDecay, streamingSoftmax } from "./mechanisms/planted.ts";
import type { Check, Subject } from "./mechanisms/subject.ts";
import type { Target } from "./suite.ts";
import { closeTargets, hostTarget, wasmTarget } from "./targets.ts";

/** A fault: what the form does instead, given the sound one. */
type Fault = (sound: Form, inputs: Tensors, options: Parameters<Form>[1]) => Tensors;

interface Saboteur {
  readonly fault: string;
  readonly check: Check;
  readonly own: Mechanism;
  readonly form?: FormName;
  readonly target?: Target;
  readonly plant: Fault;
}

const tokens = (x: Tensor, from: number, to: number): Tensor => part(x, 1, from, to - from);

/** Every input with a time axis through a function. */
function overTime(own: Mechanism, inputs: Tensors, fn: (x: Tensor) => Tensor): Record<string, Tensor> {
  const entries = Object.entries(inputs).flatMap(([name, x]) => {
    if (x === undefined) return [];
    return [[name, own.inputs[name]?.axes.startsWith("B T") ? fn(x) : x] as const];
  });
  return Object.fromEntries(entries);
}

/** Token t holds what token t + by held; the border repeats. */
function shifted(x: Tensor, by: 1 | -1): Tensor {
  const T = x.shape[1]!;
  if (T < 2) return x;
  return by === 1
    ? concat([tokens(x, 1, T), tokens(x, T - 1, T)], 1)
    : concat([tokens(x, 0, 1), tokens(x, 0, T - 1)], 1);
}

const change =
  (name: string, fn: (x: Tensor) => Tensor): Fault =>
  (sound, inputs, options) =>
    sound({ ...inputs, ...(inputs[name] && { [name]: fn(inputs[name]) }) }, options);

const output =
  (fn: (y: Tensor, inputs: Tensors) => Tensor): Fault =>
  (sound, inputs, options) => {
    const results = sound(inputs, options);
    return { ...results, output: fn(results["output"]!, inputs) };
  };

/** Value head j reads key head j mod H. */
function interleaved(x: Tensor, groups: number): Tensor {
  return concat(
    Array.from({ length: groups }, () => x),
    2,
  );
}

/** A cut at token 16, where the second piece begins from the state one token too early. */
const lateBorder: Fault = (sound, inputs, options) => {
  const own = find("gla");
  const T = inputs["v"]!.shape[1]!;
  if (T <= 16 || options?.cuSeqlens !== undefined) return sound(inputs, options);
  const first = sound(
    overTime(own, inputs, (x) => tokens(x, 0, 16)),
    options,
  );
  const early = sound(
    overTime(own, inputs, (x) => tokens(x, 0, 15)),
    options,
  );
  const rest = { ...overTime(own, inputs, (x) => tokens(x, 16, T)), initialState: early["finalState"]! };
  const second = sound(rest, options);
  return { ...second, output: concat([first["output"]!, second["output"]!], 1) };
};

let calls = 0;
const kept: Tensor[] = [];

const saboteurs: readonly Saboteur[] = [
  {
    fault: "a decay of the wrong sign",
    check: valuesCheck,
    own: find("gla"),
    plant: change("g", (g) => scaled(g, -1)),
  },
  {
    fault: "a decay one step late",
    check: valuesCheck,
    own: find("mamba2"),
    plant: change("g", (g) => shifted(g, -1)),
  },
  {
    fault: "a decay of the wrong sign over a long time",
    check: driftCheck,
    own: find("retention"),
    plant: change("g", (g) => scaled(g, 1.001)),
  },
  {
    fault: "a state that is not carried",
    check: carryCheck,
    own: find("gated-delta"),
    plant: (sound, { initialState: _, ...inputs }, options) => sound(inputs, options),
  },
  {
    fault: "a normaliser that is not carried",
    check: valuesCheck,
    own: find("linear"),
    plant: (sound, { initialNormalizer: _, ...inputs }, options) => sound(inputs, options),
  },
  {
    fault: "a normaliser that does not decay",
    check: valuesCheck,
    own: normalizedDecay(true),
    plant: (sound, inputs, options) => sound(inputs, options),
  },
  { fault: "a chunk border off by one", check: valuesCheck, own: find("gla"), plant: lateBorder },
  {
    fault: "a chunk length that changes the result",
    check: chunksCheck,
    own: find("delta"),
    plant: (sound, inputs, options) => {
      const results = sound(inputs, options);
      return options?.chunk === 7 ? { ...results, output: scaled(results["output"]!, 1.001) } : results;
    },
  },
  {
    fault: "a leak of the future",
    check: prefixCheck,
    own: find("kda"),
    plant: output((y, { v }) => add(y, scaled(mean(v!, { axes: 1, keepDims: true }), 1e-6))),
  },
  {
    fault: "a future that weighs 0 times",
    check: futureCheck,
    own: find("softmax"),
    plant: output((y, { v }) => add(y, scaled(mean(v!, { axes: [1, 2, 3], keepDims: true }), 0))),
  },
  {
    fault: "value heads that read the wrong key head",
    check: valuesCheck,
    own: find("delta"),
    plant: (sound, inputs, options) => {
      const groups = inputs["v"]!.shape[2]! / inputs["k"]!.shape[2]!;
      return sound(
        { ...inputs, q: interleaved(inputs["q"]!, groups), k: interleaved(inputs["k"]!, groups) },
        options,
      );
    },
  },
  {
    fault: "heads that see each other",
    check: headsCheck,
    own: find("cosine"),
    plant: output((y) => add(y, scaled(mean(y, { axes: 2, keepDims: true }), 1e-3))),
  },
  {
    fault: "rows of a batch that see each other",
    check: batchCheck,
    own: find("retention"),
    plant: output((y) => add(y, scaled(mean(y, { axes: 0, keepDims: true }), 1e-3))),
  },
  {
    fault: "a causal mask off by one",
    check: prefixCheck,
    own: find("softmax"),
    plant: (sound, inputs, options) =>
      sound({ ...inputs, k: shifted(inputs["k"]!, 1), v: shifted(inputs["v"]!, 1) }, options),
  },
  {
    fault: "a padding mask off by one",
    check: paddingCheck,
    own: find("softmax"),
    plant: change("mask", (mask) => shifted(mask, 1)),
  },
  {
    fault: "a padding mask off by one in a recurrence",
    check: paddingCheck,
    own: find("linear"),
    plant: change("mask", (mask) => shifted(mask, -1)),
  },
  {
    fault: "packed sequences that run into each other",
    check: packingCheck,
    own: find("gated-delta"),
    plant: (sound, inputs, options) => {
      if (options?.cuSeqlens === undefined) return sound(inputs, options);
      const { initialState, ...rest } = inputs;
      return sound(
        { ...rest, initialState: initialState && part(initialState, 0, 0, 1) },
        { ...options, cuSeqlens: undefined as never },
      );
    },
  },
  {
    fault: "a running maximum without its rescale",
    check: valuesCheck,
    own: streamingSoftmax(false),
    plant: (sound, inputs, options) => sound(inputs, options),
  },
  {
    fault: "buckets that let the future in",
    check: weightsCheck,
    own: find("lsh"),
    plant: (sound, inputs, options) => sound(inputs, { ...options, causal: false }),
  },
  {
    fault: "a full form that is causal",
    check: fullCheck,
    own: find("linear"),
    plant: (sound, inputs, options) =>
      inputs["q"]!.shape[1] === inputs["k"]!.shape[1]
        ? sound(inputs, { ...options, causal: true })
        : sound(inputs, options),
  },
  {
    fault: "a gate without a gradient",
    check: gradientsCheck,
    own: find("kda"),
    plant: change("g", (g) => g.detach()),
  },
  {
    fault: "a gradient that is a little off",
    check: gradientsCheck,
    own: find("delta"),
    plant: change("beta", (beta) => add(scaled(beta, 1.001), scaled(beta.detach(), -0.001))),
  },
  {
    fault: "an initial state without a gradient",
    check: gradientsCheck,
    own: find("gla"),
    plant: change("initialState", (x) => x.detach()),
  },
  {
    fault: "gates that overflow at their end",
    check: extremesCheck,
    own: find("mamba2"),
    plant: output((y, { g }) =>
      add(
        y,
        scaled(
          mean(g!, { axes: 1, keepDims: true })
            .dataSync()
            .some((x) => x < -80)
            ? scaled(y, Number.NaN)
            : y,
          0,
        ),
      ),
    ),
  },
  {
    fault: "widths that are rounded to vectors",
    check: oddSizesCheck,
    own: find("gla"),
    plant: output((y) => {
      const V = y.shape.at(-1)!;
      const rest = V % 4;
      if (rest === 0) return y;
      return concat([part(y, 3, 0, V - rest), scaled(part(y, 3, V - rest, rest), 1.01)], 3);
    }),
  },
  {
    fault: "results that depend on the number of threads",
    check: threadsCheck,
    own: find("linear"),
    target: wasmTarget("a"),
    plant: output((y) => scaled(y, 1 + y.device.info().threads * 1e-6)),
  },
  {
    fault: "results that depend on what ran before",
    check: determinismCheck,
    own: find("linear"),
    plant: output((y) => scaled(y, ++calls)),
  },
  {
    fault: "a leak of memory",
    check: leaksCheck,
    own: find("linear"),
    target: wasmTarget("a"),
    plant: output((y) => {
      kept.push(tensor(y.device, new Random(1).normal(new Float32Array(256)), [256], { persistent: true }));
      return y;
    }),
  },
  {
    fault: "bad input that is not refused",
    check: refusalsCheck,
    own: find("gated-delta"),
    plant: (sound, inputs, options) => {
      try {
        return sound(inputs, options);
      } catch {
        return { output: inputs["v"] };
      }
    },
  },
];

function subjectOf({ own, form = "chunkwise", target = hostTarget }: Saboteur, plant?: Fault): Subject {
  const sound = own.forms[form] as Form;
  const planted: Form = plant === undefined ? sound : (inputs, options) => plant(sound, inputs, options);
  const mechanism = { ...own, forms: { ...own.forms, [form]: planted } };
  return { mechanism, name: form, form: planted, target };
}

for (const saboteur of saboteurs) {
  test(`sabotage: ${saboteur.fault} is noticed`, async () => {
    const subject = subjectOf(saboteur, saboteur.plant);
    assert.notEqual(saboteur.check.applies?.(subject), false, "the check is about another subject");
    await assert.rejects(async () => saboteur.check.run(subject), { name: "AssertionError" });
  });
}

const sound = saboteurs.map((saboteur) =>
  saboteur.own.id.startsWith("planted")
    ? {
        ...saboteur,
        own: saboteur.own.id.includes("decay") ? normalizedDecay(false) : streamingSoftmax(true),
      }
    : saboteur,
);

test("sabotage: the sound forms pass every check that notices a broken one", async () => {
  for (const saboteur of sound) await saboteur.check.run(subjectOf(saboteur));
});

after(closeTargets);
