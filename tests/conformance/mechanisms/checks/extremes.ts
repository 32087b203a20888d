import type { Values } from "../../../../src/mechanisms/mechanism.ts";
import { draw, type Inputs, mapValues, usual } from "../draw.ts";
import { agree, type Check, evaluate, outputBound, type Subject, usualCall } from "../subject.ts";

interface Extreme {
  readonly name: string;
  /** Changes the inputs, or says undefined where they have nothing to change. */
  apply(inputs: Inputs, subject: Subject): Inputs | undefined;
}

const filled = (values: Values, value: number): Values => mapValues(values, () => value);

function change(name: string, fn: (values: Values) => Values): (inputs: Inputs) => Inputs | undefined {
  return (inputs) => inputs[name] && { ...inputs, [name]: fn(inputs[name]) };
}

/** One token of one head in five: its whole memory goes. */
const sparse = (g: Values): Values => {
  const width = g.shape.length === 4 ? g.shape[3]! : 1;
  return mapValues(g, (value, at) => (Math.floor(at / width) % 5 === 2 ? -90 : value));
};

const repeated = (k: Values): Values => {
  const [, , H, K] = k.shape as [number, number, number, number];
  return mapValues(k, (_, at) => k.data[at % (H * K)]!);
};

/** A factor of one input; long keys of a delta write blow its state up in any arithmetic. */
function scaled(name: string, factor: number) {
  return (inputs: Inputs, { mechanism: { traits } }: Subject): Inputs | undefined => {
    if (inputs[name] === undefined) return undefined;
    if (name === "k" && factor > 1 && traits.write === "delta") return undefined;
    return { ...inputs, [name]: mapValues(inputs[name], (value) => value * factor) };
  };
}

const extremes: readonly Extreme[] = [
  { name: "g = 0", apply: change("g", (g) => filled(g, 0)) },
  { name: "g = −90", apply: change("g", (g) => filled(g, -90)) },
  { name: "g = −90 here and there", apply: change("g", sparse) },
  ...[0, 1, 2].map((value) => ({
    name: `beta = ${value}`,
    apply: change("beta", (beta) => filled(beta, value)),
  })),
  { name: "zero keys", apply: change("k", (k) => filled(k, 0)) },
  { name: "zero queries", apply: change("q", (q) => filled(q, 0)) },
  { name: "one key again and again", apply: change("k", repeated) },
  ...["q", "k", "v"].flatMap((name) =>
    [1e4, 1e-4].map((factor) => ({ name: `${name} times ${factor}`, apply: scaled(name, factor) })),
  ),
];

/**
 * A score in an exponent is off by eps times its size, and so is the weight: what large scores do to exact attention.
 * Recurrences have no exponents of scores.
 */
function condition({ mechanism: { traits } }: Subject, { q }: Inputs): number {
  if (traits.write !== "none" || q === undefined) return 1;
  const K = q.shape.at(-1)!;
  const lengths = Array.from({ length: q.data.length / K }, (_, i) =>
    Math.hypot(...q.data.subarray(i * K, (i + 1) * K)),
  );
  return Math.max(1, Math.max(...lengths) * K ** -0.5);
}

export const extremesCheck: Check = {
  name: "extremes",
  sentence:
    "Gates at both ends, beta 0, 1 and 2, zero and repeated keys, large and small numbers: finite and right.",
  async run(subject) {
    const { mechanism, form, target } = subject;
    const device = await target.open(1);
    for (const { name, apply } of extremes) {
      const inputs = apply(draw(mechanism), subject);
      if (inputs === undefined) continue;
      agree(
        evaluate(device, form, inputs, usualCall(mechanism)),
        mechanism.reference(inputs, usualCall(mechanism)),
        outputBound(mechanism, usual) * condition(subject, inputs),
        name,
      );
    }
  },
};
