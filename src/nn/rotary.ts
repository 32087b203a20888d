import type { Tensor } from "../autograd/tensor.ts";
import { type RotaryTable, rotary, rotaryTable } from "../ops/rotary/index.ts";

/** Options of `Rotary`. */
export interface RotaryModuleOptions {
  /** Channels of a head that turn; even. */
  readonly width: number;
  readonly base?: number;
}

/** Positions that a table holds at least once so many were asked for: powers of two, so that a stream of single tokens rebuilds it a few times only. */
export function roomFor(positions: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(64, positions)));
}

/** Rotary positions with a table that grows as positions come. It has no parameters. */
export class Rotary {
  readonly width: number;
  readonly base: number;
  #table: RotaryTable | undefined;
  /** Shorter tables from before: steps that were noted down still read them. All of them together are no larger. */
  readonly #outgrown: RotaryTable[] = [];

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
    return rotary(x, this.tableFor(x, last + 1), positions, { last });
  }

  /** Frees the table. */
  dispose(): void {
    if (this.#table !== undefined) this.#outgrown.push(this.#table);
    for (const { cosines, sines } of this.#outgrown.splice(0)) {
      cosines.dispose();
      sines.dispose();
    }
    this.#table = undefined;
  }

  private tableFor(x: Tensor, positions: number): RotaryTable {
    if (this.#table !== undefined && this.#table.cosines.device !== x.device) this.dispose();
    if (this.#table === undefined || this.#table.positions < positions) {
      if (this.#table !== undefined) this.#outgrown.push(this.#table);
      const length = roomFor(positions);
      this.#table = rotaryTable(x.device, { width: this.width, base: this.base, positions: length });
    }
    return this.#table;
  }
}
