import type { Tensor } from "../autograd/tensor.ts";
import { embedding, gatherRows } from "../ops/embedding/index.ts";
import { type Init, normalInit } from "./init.ts";
import { Module, Parameter } from "./module.ts";

/** A table of vectors by number. */
export class Embedding extends Module {
  readonly weight: Parameter;

  constructor(entries: number, width: number, init: Init = normalInit(0.02)) {
    super();
    this.weight = new Parameter([entries, width], { init });
  }

  /** `ids [...] int32` → `[..., D]`. */
  forward(ids: Tensor): Tensor {
    return embedding(ids, this.weight.value);
  }

  /** The same for ids that are known to name rows of the table: nothing is read back to check them. No gradient. */
  take(ids: Tensor): Tensor {
    return gatherRows(ids, this.weight.value);
  }
}
