import assert from "node:assert/strict";
import { test } from "node:test";
import { noGrad, scope, Tensor, tensor } from "../src/autograd/index.ts";
import { type Device, hostDevice, openWasm } from "../src/device/index.ts";
import { isLinnetError } from "../src/errors.ts";
import { Embedding, GatedMlp, Linear, norm } from "../src/nn/index.ts";
import * as ops from "../src/ops/index.ts";

/** What a caller without types may write: it passes for every parameter. */
type Anything = never;

function refuses(run: () => unknown, code: string, message: RegExp): void {
  assert.throws(run, (error) => {
    assert.ok(isLinnetError(error), `${error}`);
    assert.equal(error.code, code, `${error.stack}`);
    assert.match(error.message, message);
    return true;
  });
}

async function onBoth(run: (device: Device) => void): Promise<void> {
  const wasm = await openWasm({ threads: 1 });
  for (const device of [hostDevice(), wasm]) scope(device, () => noGrad(() => run(device)));
  wasm.close();
}

test("refusals: numbers that a dtype cannot hold leave nothing behind", async () => {
  await onBoth((device) => {
    const before = device.info().bytes;
    for (const [dtype, value] of [
      ["int32", 1.5],
      ["int32", Number.NaN],
      ["int32", 2 ** 31],
      ["int32", -(2 ** 31) - 1],
      ["uint8", 256],
      ["uint8", -1],
    ] as const) {
      refuses(
        () => tensor(device, [1, value], [2], { dtype, persistent: true }),
        "E_DTYPE",
        new RegExp(`\\[tensor\\] ${dtype} holds whole numbers.*${value} at 1`),
      );
    }
    refuses(() => tensor(device, [1, 2], [3], { persistent: true }), "E_SHAPE", /values and shape disagree/);
    assert.deepEqual(device.info().bytes, before);
    const edges = [-(2 ** 31), 2 ** 31 - 1];
    assert.deepEqual([...tensor(device, edges, [2], { dtype: "int32" }).dataSync()], edges);
  });
});

test("refusals: a dtype that tensors do not have is named", async () => {
  await onBoth((device) => {
    for (const dtype of ["float16", "bfloat16", "int64", "toString"] as Anything[]) {
      refuses(
        () => tensor(device, [1], [1], { dtype }),
        "E_DTYPE",
        new RegExp(`\\[tensor\\] .*got ${dtype}`),
      );
    }
  });
});

test("refusals: what is no tensor is named by the op and the argument", async () => {
  await onBoth((device) => {
    const x = tensor(device, [1, 2, 3, 4], [2, 2]);
    const ids = tensor(device, [0, 1], [2], { dtype: "int32" });
    const calls: readonly (readonly [string, string, (bad: Anything) => unknown])[] = [
      ["add", "b", (bad) => ops.add(x, bad)],
      ["add", "a", (bad) => ops.add(bad, x)],
      ["divide", "b", (bad) => ops.divide(x, bad)],
      ["matmul", "a", (bad) => ops.matmul(bad, x)],
      ["matmul", "b", (bad) => ops.matmul(x, bad)],
      ["silu", "x", (bad) => ops.silu(bad)],
      ["softmax", "x", (bad) => ops.softmax(bad)],
      ["sum", "x", (bad) => ops.sum(bad)],
      ["max", "x", (bad) => ops.max(bad)],
      ["rmsNorm", "x", (bad) => ops.rmsNorm(bad)],
      ["layerNorm", "x", (bad) => ops.layerNorm(bad)],
      ["gatedRmsNorm", "gate", (bad) => ops.gatedRmsNorm(x, bad)],
      ["embedding", "weight", (bad) => ops.embedding(ids, bad)],
      ["cross-?[eE]ntropy", "logits", (bad) => ops.crossEntropy(bad, ids)],
    ];
    for (const [who, name, call] of calls) {
      for (const bad of [undefined, null, 3, [1, 2], new Float32Array(4)] as Anything[]) {
        refuses(
          () => call(bad),
          "E_DTYPE",
          new RegExp(`\\[${who}\\] ${name} is no tensor: expected .*, got `),
        );
      }
    }
    assert.ok(x instanceof Tensor);
  });
});

test("refusals: words that an option does not know are not taken for its default", async () => {
  await onBoth((device) => {
    const x = tensor(device, [1, 2, 3, 4], [2, 2]);
    const targets = tensor(device, [0, 1], [2], { dtype: "int32" });
    const weight = tensor(device, [1, 2, 3, 4, 5, 6, 7, 8], [2, 4]);
    const row = tensor(device, [1, 2, 3, 4], [1, 2, 2]);
    const word = "gelu" as Anything;
    refuses(
      () => ops.gatedRmsNorm(x, x, undefined, { activation: word }),
      "E_CONFIG",
      /activation.*silu or sigmoid, got gelu/,
    );
    refuses(
      () => ops.gatedRmsNorm(x, x, undefined, { order: word }),
      "E_CONFIG",
      /order.*norm-first or gate-first, got gelu/,
    );
    refuses(
      () => ops.crossEntropy(x, targets, { reduction: word }),
      "E_CONFIG",
      /reduction.*mean or sum, got gelu/,
    );
    refuses(
      () => ops.shortConv({ x: row, weight }, { activation: word }),
      "E_CONFIG",
      /activation.*silu or none, got gelu/,
    );
    refuses(() => norm(2, { kind: word }), "E_CONFIG", /kind.*rms or layer, got gelu/);
    refuses(() => new GatedMlp(2, 2, "relu" as Anything), "E_CONFIG", /activation.*silu or gelu, got relu/);
    refuses(() => hostDevice({ dtype: word }), "E_CONFIG", /dtype.*float64 or float32, got gelu/);
    for (const axes of [null, "1", {}] as Anything[]) {
      refuses(() => ops.sum(x, { axes }), "E_SHAPE", /\[sum\] axes/);
      refuses(() => ops.max(x, { axes }), "E_SHAPE", /\[max\] axes/);
    }
  });
});

test("refusals: a module of no possible width is refused where it is made", () => {
  for (const width of [-1, 1.5, Number.NaN, "4", undefined] as Anything[]) {
    for (const make of [
      () => new Linear(width, 4),
      () => new Linear(4, width),
      () => new Embedding(width, 4),
      () => norm(width),
      () => new GatedMlp(4, width),
    ]) {
      refuses(make, "E_SHAPE", /\[parameter\] a shape holds whole numbers >= 0, got \[/);
    }
  }
});
