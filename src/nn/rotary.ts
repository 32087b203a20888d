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
  /** The longest one last: steps that were noted down still read shorter ones, which together are no larger. */
  readonly #tables: RotaryTable[] = [];

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

  /** Frees the tables. */
  dispose(): void {
    for (const { cosines, sines } of this.#tables.splice(0)) {
      cosines.dispose();
      sines.dispose();
    }
  }

  private tableFor(x: Tensor, positions: number): RotaryTable {
    const held = this.#tables.at(-1);
    if (held !== undefined && held.cosines.device !== x.device) this.dispose();
    else if (held !== undefined && held.positions >= positions) return held;
    const length = roomFor(positions);
    const table = rotaryTable(x.device, { width: this.width, base: this.base, positions: length });
    this.#tables.push(table);
    return table;
  }
}
