import assert from "node:assert/strict";
import { test } from "node:test";
import { ConfigError, ShapeError } from "../errors.ts";
import { solveAxes } from "./axes.ts";

const message = (text: string) => (error: Error) => {
  assert.ok(error instanceof ShapeError);
  assert.equal(error.code, "E_SHAPE");
  assert.equal(error.message, text);
  return true;
};

test("axes are solved over all arguments", () => {
  const { B, T, H, K, HV, V } = solveAxes("gla", {
    q: { shape: [2, 64, 4, 16], axes: "B T H K" },
    k: { shape: [2, 64, 4, 16], axes: "B T H K" },
    v: { shape: [2, 64, 8, 32], axes: "B T HV V" },
  });
  assert.deepEqual([B, T, H, K, HV, V], [2, 64, 4, 16, 8, 32]);
});

test("a disagreement names both arguments, the axis and both shapes", () => {
  assert.throws(
    () =>
      solveAxes("gla", {
        q: { shape: [2, 64, 4, 16], axes: "B T H K" },
        k: { shape: [2, 64, 8, 16], axes: "B T H K" },
        v: { shape: [2, 64, 8, 16], axes: "B T H V" },
      }),
    message("[gla] q and k disagree on H: q is [B=2, T=64, H=4, K=16], k is [B=2, T=64, H=8, K=16]"),
  );
});

test("the other side of a disagreement is one that carries the axis", () => {
  assert.throws(
    () =>
      solveAxes("add", {
        g: { shape: [3], axes: "HV" },
        v: { shape: [2, 8], axes: "T V" },
        o: { shape: [2, 9], axes: "T V" },
      }),
    message("[add] v and o disagree on V: v is [T=2, V=8], o is [T=2, V=9]"),
  );
});

test("one argument may disagree with itself", () => {
  assert.throws(
    () => solveAxes("invert", { m: { shape: [3, 4], axes: "K K" }, n: { shape: [3], axes: "K" } }),
    message("[invert] m disagrees with itself on K: expected [K, K], got [3, 4]"),
  );
});

test("a wrong rank says the expected axes and what came", () => {
  assert.throws(
    () => solveAxes("gla", { q: { shape: [2, 64, 16], axes: "B T H K" } }),
    message("[gla] q has the wrong number of axes: expected [B, T, H, K], got 3 axes [2, 64, 16]"),
  );
  assert.throws(
    () => solveAxes("norm", { x: { shape: [], axes: "… D" } }),
    message("[norm] x has the wrong number of axes: expected […, D], got 0 axes []"),
  );
});

test("options fix sizes", () => {
  const known = { H: 4, K: undefined };
  assert.throws(
    () => solveAxes("layer", { q: { shape: [8, 2], axes: "H K" } }, known),
    message("[layer] q does not fit H: expected H=4, got [H=8, K=2]"),
  );
  assert.deepEqual({ ...solveAxes("layer", { q: { shape: [4, 2], axes: "H K" } }, known) }, { H: 4, K: 2 });
});

test("absent arguments are passed over", () => {
  const bias = undefined as { shape: number[]; axes: "M" } | undefined;
  const sizes = solveAxes("linear", { x: { shape: [3, 4], axes: "T D" }, bias });
  const optional: number | undefined = sizes.M;
  assert.equal(optional, undefined);
  assert.deepEqual({ ...sizes }, { T: 3, D: 4 });
});

test("literal sizes are checked", () => {
  const table = { shape: [3, 8], axes: "2 K" } as const;
  assert.throws(
    () => solveAxes("rope", { table }),
    message("[rope] table does not fit 2: expected 2, got [3, K=8]"),
  );
  assert.equal(solveAxes("rope", { table: { shape: [2, 8], axes: "2 K" } }).K, 8);
});

test("products are checked or solved for their unknown factor", () => {
  const x = { shape: [5, 32], axes: "T H*K" } as const;
  assert.deepEqual({ ...solveAxes("split", { x }, { H: 4 }) }, { H: 4, T: 5, K: 8 });
  const w = { shape: [4, 8], axes: "H K" } as const;
  assert.equal(solveAxes("split", { x, w }).K, 8);
  assert.throws(
    () => solveAxes("split", { x: { shape: [5, 33], axes: "T H*K" }, w }),
    message("[split] x does not fit H*K: expected 32, got [T=5, H*K=33]"),
  );
  assert.throws(
    () => solveAxes("split", { x: { shape: [5, 33], axes: "T H*K" } }, { H: 4 }),
    message("[split] x does not fit H*K: expected a multiple of 4, got [T=5, H*K=33]"),
  );
  assert.throws(
    () => solveAxes("split", { x }),
    message(
      "[split] x does not fit H*K: expected all of its factors but one told by other arguments or options, got [T=5, H*K=32]",
    ),
  );
  assert.equal(solveAxes("split", { x: { shape: [12], axes: "3*D" } }).D, 4);
});

test("products whose factors are told late or in a chain are solved", () => {
  const sizes = solveAxes("chain", {
    a: { shape: [24], axes: "P*Q" },
    b: { shape: [6], axes: "Q*R" },
    c: { shape: [3], axes: "R" },
  });
  assert.deepEqual({ ...sizes }, { R: 3, Q: 2, P: 12 });
});

test("a term may be a name and a few more", () => {
  assert.equal(solveAxes("pack", { cuSeqlens: { shape: [4], axes: "N+1" } }).N, 3);
  assert.throws(
    () => solveAxes("pack", { cuSeqlens: { shape: [0], axes: "N+1" } }),
    message("[pack] cuSeqlens does not fit N+1: expected a multiple of 1 and 1 more, got [N+1=0]"),
  );
});

test("empty axes are legal unless refused", () => {
  assert.equal(solveAxes("x", { q: { shape: [0, 2], axes: "T K" } }).T, 0);
  assert.throws(
    () => solveAxes("x", { q: { shape: [2, 0], axes: "T K!" } }),
    message("[x] q does not fit K: expected at least 1, got [T=2, K=0]"),
  );
  assert.deepEqual(
    { ...solveAxes("x", { q: { shape: [0], axes: "H*K" }, k: { shape: [0], axes: "H" } }) },
    { H: 0, K: 0 },
  );
});

test("an axis may stretch from one", () => {
  const scale = { shape: [1], axes: "K?" } as const;
  assert.equal(solveAxes("mul", { scale, x: { shape: [7], axes: "K" } }).K, 7);
  assert.equal(solveAxes("mul", { scale }).K, 1);
  assert.equal(solveAxes("mul", { scale, x: { shape: [7], axes: "K?" } }).K, 7);
  assert.throws(
    () => solveAxes("mul", { x: { shape: [7], axes: "K" }, y: { shape: [6], axes: "K?" } }),
    message("[mul] x and y disagree on K: x is [K=7], y is [K=6]"),
  );
});

test("leading axes are equal or broadcast", () => {
  const x = { shape: [2, 3, 8], axes: "… D" } as const;
  assert.deepEqual({ ...solveAxes("norm", { x, w: { shape: [8], axes: "D" } }) }, { D: 8, "…": 6 });
  assert.equal(solveAxes("norm", { x: { shape: [8], axes: "… D" } })["…"], 1);
  assert.throws(
    () => solveAxes("norm", { x, y: { shape: [3, 8], axes: "… D" } }),
    message("[norm] x and y disagree on their leading axes: x is [2, 3, D=8], y is [3, D=8]"),
  );
  assert.equal(solveAxes("norm", { y: { shape: [3, 8], axes: "…? D" }, x })["…"], 6);
  assert.throws(
    () => solveAxes("norm", { y: { shape: [4, 2, 3, 8], axes: "…? D" }, x }),
    message("[norm] x and y disagree on their leading axes: x is [2, 3, D=8], y is [4, 2, 3, D=8]"),
  );
  const a = { shape: [4, 1, 2, 2], axes: "…? M K" } as const;
  const b = { shape: [3, 2, 5], axes: "…? K N" } as const;
  assert.equal(solveAxes("matmul", { a, b })["…"], 12);
  assert.throws(
    () => solveAxes("matmul", { a: { shape: [4, 2, 2], axes: "…? M K" }, b }),
    message("[matmul] a and b disagree on their leading axes: a is [4, M=2, K=2], b is [3, K=2, N=5]"),
  );
});

test("free axes fit anything", () => {
  assert.deepEqual({ ...solveAxes("x", { q: { shape: [9, 4], axes: "_ K" } }) }, { K: 4 });
});

test("axes that cannot be read are refused", () => {
  for (const axes of ["B,T", "*H", "H*", "constructor", "B … T", "H+K", "-1", "H? ?"]) {
    assert.throws(() => solveAxes("x", { q: { shape: [1, 1, 1], axes } }), ConfigError, axes);
  }
});

test("sizes have the names of the axes as their type", () => {
  const sizes = solveAxes("x", { q: { shape: [2, 8, 5], axes: "T H*K N+1" } }, { H: 2 });
  // @ts-expect-error Q is no axis of any argument
  assert.equal(sizes.Q, undefined);
  const sum: number = sizes.T + sizes.H + sizes.K + sizes.N;
  assert.equal(sum, 2 + 2 + 4 + 4);
});
