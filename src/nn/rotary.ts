import type { Tensor } from "../autograd/tensor.ts";
import { type RotaryTable, rotary, rotaryTable } from "../ops/rotary/index.ts";

/** Options of `Rotary`. */
export interface RotaryModuleOptions {
  /** Channels of a head that turn; even. */
  readonly width: number;
  readonly base?: number;
}

/** Rotary positions with a table that grows as positions come. It has no parameters. */
export class Rotary {
  readonly width: number;
  readonly base: number;
  #table: RotaryTable | undefined;

  constructor(options: RotaryModuleOptions) {
    this.width = options.width;
    this.base = options.base ?? 10_000;
  }

  /**
   * `x [B, T, H, K]` with the first `width` channels of every head turned by their positions.
   *
   * @param last The largest position among `positions`; tokens count from 0 where `positions` is absent.
   */
  forward(x: Tensor, positions?: Tensor, last: number = x.shape[1]! - 1): Tensor {
    return rotary(x, this.tableFor(x, last + 1), positions);
  }

  /** Frees the table. */
  dispose(): void {
    this.#table?.cosines.dispose();
    this.#table?.sines.dispose();
    this.#table = undefined;
  }

  private tableFor(x: Tensor, positions: number): RotaryTable {
    if (
      this.#table === undefined ||
      this.#table.positions < positions ||
      this.#table.cosines.device !== x.device
    ) {
      this.dispose();
      // Powers of two: a stream of single tokens rebuilds the table a few times only.
      const length = 2 ** Math.ceil(Math.log2(Math.max(64, positions)));
      this.#table = rotaryTable(x.device, { width: this.width, base: this.base, positions: length });
    }
    return this.#table;
  }
}
