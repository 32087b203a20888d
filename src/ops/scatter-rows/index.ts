import { solveAxes } from "../../tensor/axes.ts";
import { checkIds, gatherRows, sumRows } from "../embedding/index.ts";
import { apply, type Op, type OpEntry, type Tensor } from "../op.ts";

const op: Op<{ rows: Tensor; ids: Tensor }, number, { y: Tensor }> = {
  name: "scatter-rows",
  forward({ rows, ids }, count) {
    solveAxes("scatterRows", {
      rows: { shape: rows.shape, axes: "n D" },
      ids: { shape: ids.shape, axes: "n" },
    });
    checkIds("scatterRows", ids, count);
    return { outputs: { y: sumRows(ids, rows, count) }, saved: undefined };
  },
  backward: ({ inputs: { ids }, grads: { y } }) => ({ rows: y && gatherRows(ids, y) }),
};

/**
 * A table whose row r is the sum of the rows that carry the number r.
 *
 * `rows [n, D]`, `ids [n] int32` → `[count, D]`; rows that no id names are zero. The counterpart of `embedding`: the
 * gradient gathers rows. Sums run in the order of the ids, so they do not depend on threads.
 *
 * @throws ShapeError when rows and ids disagree on n or an id is outside the table, DtypeError for other ids.
 * @example
 * const sums = scatterRows(table, tensor(device, new Int32Array(16), [16], { dtype: "int32" }), 4); // [4, D]
 */
export function scatterRows(rows: Tensor, ids: Tensor, count: number): Tensor {
  return apply(op, { rows, ids }, count).y;
}

/** How suites see `scatterRows`. */
export const scatterRowsEntry: OpEntry<{ readonly count: number }> = {
  kind: "op",
  name: "scatter-rows",
  kernels: [],
  run: ({ rows, ids }, { count }) => ({ y: scatterRows(rows!, ids!, count) }),
  cases: [
    ...[1, 17, 33].map((width) => ({
      name: `D=${width}`,
      inputs: {
        rows: { shape: [65, width] },
        ids: { shape: [65], sample: "integers" as const, low: 0, high: 7 },
      },
      options: { count: 9 },
      terms: 65,
      gradientTerms: { rows: 1 },
    })),
    {
      name: "no rows",
      inputs: { rows: { shape: [0, 3] }, ids: { shape: [0], sample: "integers", low: 0, high: 7 } },
      options: { count: 2 },
      terms: 1,
    },
    {
      name: "id outside",
      inputs: { rows: { shape: [2, 3] }, ids: { shape: [2], sample: "values", values: [0, 5] } },
      options: { count: 5 },
      terms: 1,
      fails: "E_SHAPE",
    },
  ],
};
