import assert from "node:assert/strict";
import type { Mechanism } from "../../../../src/mechanisms/mechanism.ts";
import { Random } from "../../../../src/tensor/random.ts";
import { cut, cutTime, draw, hasTime, type Inputs, isCarried, mapInputs, mapValues, usual } from "../draw.ts";
import {
  agree,
  type Check,
  carriedOn,
  differentiate,
  evaluate,
  formOf,
  fresh,
  hasCache,
  outputBound,
  type Results,
  usualCall,
} from "../subject.ts";

/** Outputs of pieces put together along time, and the state after the last. */
function joined(pieces: readonly Results[], T: number): Results {
  const last = pieces.at(-1)!;
  const [B, , ...inner] = last["output"]!.shape as [number, number, ...number[]];
  const width = inner.reduce((product, length) => product * length, 1);
  const data = new Float64Array(B * T * width);
  let at = 0;
  for (const { output } of pieces as readonly { output: Results[string] }[]) {
    const length = output.shape[1]!;
    for (let b = 0; b < B; b++) {
      const row = output.data.subarray(b * length * width, (b + 1) * length * width);
      data.set(row, (b * T + at) * width);
    }
    at += length;
  }
  return { ...last, output: { shape: [B, T, ...inner], data } };
}

export const carryCheck: Check = {
  name: "state carry",
  sentence: "A sequence cut anywhere, every other piece by single steps, is the sequence in one.",
  applies: ({ mechanism }) => mechanism.traits.causal && Object.keys(mechanism.state).length > 0,
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    const inputs = draw(mechanism);
    const T = usual["T"]!;
    const expected = mechanism.reference(inputs, usualCall(mechanism));
    const step = formOf(mechanism, "step") ?? form;
    for (const seed of [1, 2, 3]) {
      const cuts = [...new Random(seed).integers(new Int32Array(4), 0, T + 1)].sort((a, b) => a - b);
      const borders = [0, 1, ...cuts, T].sort((a, b) => a - b);
      const pieces: Results[] = [];
      let given = inputs;
      for (let i = 0; i + 1 < borders.length; i++) {
        const tokens = cutTime(mechanism, given, borders[i]!, borders[i + 1]!);
        pieces.push(evaluate(device, i % 2 === 0 ? form : step, tokens, usualCall(mechanism)));
        given = { ...fresh(mechanism, inputs), ...carriedOn(mechanism, pieces.at(-1)!) };
      }
      agree(joined(pieces, T), expected, outputBound(mechanism, usual), `cut at ${borders.join(", ")}`);
    }
  },
};

/** The first tokens of an output. */
function firstTokens(results: Results, count: number): Float64Array {
  return cut(results["output"]!, 1, 0, count).data;
}

export const prefixCheck: Check = {
  name: "prefix",
  sentence: "What a prefix gives does not depend on what follows it, bit for bit.",
  applies: ({ mechanism }) => mechanism.traits.prefixExact === true,
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    const inputs = draw(mechanism);
    const whole = evaluate(device, form, inputs, usualCall(mechanism));
    for (const count of [1, 15, 16, 20]) {
      const changed = mapInputs(inputs, (values, name) => {
        if (!hasTime(mechanism, name)) return values;
        const inner = values.data.length / (usual["B"]! * usual["T"]!);
        const isLater = (at: number): boolean => Math.floor(at / inner) % usual["T"]! >= count;
        // Half of a gate or a strength is one still.
        return mapValues(values, (value, at) => (isLater(at) ? value / 2 : value));
      });
      assert.deepEqual(
        firstTokens(evaluate(device, form, changed, usualCall(mechanism)), count),
        firstTokens(whole, count),
        `changed after ${count}`,
      );
      const short = evaluate(device, form, cutTime(mechanism, inputs, 0, count), usualCall(mechanism));
      assert.deepEqual(firstTokens(short, count), firstTokens(whole, count), `ends after ${count}`);
    }
  },
};

export const futureCheck: Check = {
  name: "future",
  sentence: "Not even a NaN that follows reaches a prefix: nothing of the future is multiplied by 0.",
  applies: ({ mechanism }) => mechanism.traits.prefixExact === true,
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    // Longer than a tile of queries, so that tiles on the diagonal and before it are both there.
    const T = 75;
    const inputs = draw(mechanism, { ...usual, T });
    const whole = evaluate(device, form, inputs, usualCall(mechanism));
    for (const count of [1, 16, 20, 66]) {
      const changed = mapInputs(inputs, (values, name) => {
        if (!hasTime(mechanism, name)) return values;
        const inner = values.data.length / (usual["B"]! * T);
        const isLater = (at: number): boolean => Math.floor(at / inner) % T >= count;
        return mapValues(values, (value, at) => (isLater(at) ? Number.NaN : value));
      });
      const got = evaluate(device, form, changed, usualCall(mechanism));
      assert.deepEqual(firstTokens(got, count), firstTokens(whole, count), `NaN after ${count}`);
    }
  },
};

const borders = [0, 0, 9, 10, 31, 37] as const;

export const packingCheck: Check = {
  name: "packing",
  sentence:
    "Sequences packed in a row, an empty one and one of one token among them, are those sequences alone.",
  applies: ({ mechanism }) => mechanism.traits.causal,
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    const count = borders.length - 1;
    const inputs = draw(mechanism, { ...usual, B: 1 }, { sequences: count, carried: !hasCache(mechanism) });
    const packed = evaluate(device, form, inputs, { ...usualCall(mechanism), cuSeqlens: borders });
    const bound = outputBound(mechanism, usual);
    for (let n = 0; n < count; n++) {
      const [from, to] = [borders[n]!, borders[n + 1]!];
      const own = mapInputs(cutTime(mechanism, inputs, from, to), (values, name) =>
        isCarried(mechanism, name) ? cut(values, 0, n, n + 1) : values,
      );
      // Nothing comes of no tokens, and the state stays as it was.
      const expected =
        from === to ? statesOf(mechanism, own) : mechanism.reference(own, usualCall(mechanism));
      const got: Record<string, Results[string]> = { output: cut(packed["output"]!, 1, from, to) };
      for (const { output } of Object.values(mechanism.state)) {
        if (packed[output] !== undefined) got[output] = cut(packed[output], 0, n, n + 1);
      }
      agree(got, expected, bound, `sequence ${n}`);
    }
  },
};

export const paddingCheck: Check = {
  name: "padding",
  sentence: "Tokens that a mask hides, wherever they are, leave no trace; their own outputs are zeros.",
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    const inputs = draw(mechanism, usual, { carried: !hasCache(mechanism) });
    const [B, T] = [usual["B"]!, usual["T"]!];
    // The first row begins with padding, the second has some inside and behind.
    const real = (b: number, t: number): boolean => (b === 0 ? t >= 11 : t < 30 && t % 7 !== 3);
    const mask = {
      shape: [B, T],
      data: Float64Array.from({ length: B * T }, (_, i) => Number(real(Math.floor(i / T), i % T))),
    };
    const got = evaluate(device, form, inputs, { ...usualCall(mechanism), mask });
    for (let b = 0; b < B; b++) {
      const kept = Array.from({ length: T }, (_, t) => t).filter((t) => real(b, t));
      const own = mapInputs(inputs, (values, name) => {
        const row = mechanism.inputs[name]!.axes.startsWith("B ") ? cut(values, 0, b, b + 1) : values;
        return hasTime(mechanism, name) ? tokensOf(row, kept) : row;
      });
      const alone = evaluate(device, form, own, usualCall(mechanism));
      const row = cut(got["output"]!, 0, b, b + 1);
      assert.deepEqual(tokensOf(row, kept).data, alone["output"]!.data, `row ${b}`);
      const hidden = Array.from({ length: T }, (_, t) => t).filter((t) => !real(b, t));
      assert.ok(
        tokensOf(row, hidden).data.every((value) => value === 0),
        `row ${b}: padding has an output`,
      );
      for (const { output } of Object.values(mechanism.state)) {
        if (got[output] === undefined || alone[output] === undefined) continue;
        assert.deepEqual(cut(got[output], 0, b, b + 1).data, alone[output].data, `${output} of row ${b}`);
      }
    }
  },
};

export const nothingSeenCheck: Check = {
  name: "nothing seen",
  sentence: "A row whose tokens are all hidden gives zeros and zero gradients, never NaN.",
  applies: ({ name }) => name !== "step",
  async run({ mechanism, form, target }) {
    const device = await target.open(1);
    const inputs = draw(mechanism, usual, { carried: false });
    const [B, T] = [usual["B"]!, usual["T"]!];
    const mask = { shape: [B, T], data: Float64Array.from({ length: B * T }, (_, i) => Number(i < T)) };
    const call = { ...usualCall(mechanism), mask };
    const output = cut(evaluate(device, form, inputs, call)["output"]!, 0, 1, 2);
    assert.ok(
      output.data.every((value) => value === 0),
      "the output of nothing",
    );
    const gradients = differentiate(device, mechanism, form, inputs, call);
    for (const [name, values] of Object.entries(gradients)) {
      assert.ok(values.data.every(Number.isFinite), `${name} has a finite gradient`);
      if (!hasTime(mechanism, name)) continue;
      assert.ok(
        cut(values, 0, 1, 2).data.every((value) => value === 0),
        `gradient of ${name}`,
      );
      assert.ok(
        cut(values, 0, 0, 1).data.some((value) => value !== 0),
        `the other row's gradient of ${name}`,
      );
    }
  },
};

/** The carried state under the names that carry it out. */
function statesOf(mechanism: Mechanism, inputs: Inputs): Results {
  const parts = Object.values(mechanism.state).filter((part) => inputs[part.input] !== undefined);
  return Object.fromEntries(parts.map((part) => [part.output, inputs[part.input]!]));
}

/** Some tokens of a batch of one. */
function tokensOf(values: Results[string], tokens: readonly number[]): Results[string] {
  const pieces = tokens.map((t) => cut(values, 1, t, t + 1).data);
  const inner = values.shape.slice(2);
  const data = new Float64Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    data.set(piece, at);
    at += piece.length;
  }
  return { shape: [1, tokens.length, ...inner], data };
}
