import type { NodeParts } from "./environment.ts";
import type { KernelFunction } from "./module.ts";
import { instantiate } from "./module.ts";

const flag = "experimental-wasm-revectorize";

/** Steps of the inner axis of the tile; its operands then fit the first cache. */
const inner = 256;

/** Jobs a timed call does: about ten microseconds. */
const jobs = 8;

/** How much faster than 128 bits allow the tile must run, to say that 256 are in use. */
const leastGain = 1.2;

/** A round of timed calls; compiled code gets fast within a few of them, on a machine under load within more. */
const roundMilliseconds = 4;
const mostRounds = 50;

const otherBits = "tier b instead of c: the self-test gave other bits than tier b";

/** The self-test's two kernels on a memory of their own. */
interface Bench {
  /** Runs the tile and says what came out, bit for bit. */
  sums(): string;
  /** Microseconds of as much arithmetic in the tile and in single lanes. */
  time(): Times;
}

interface Times {
  readonly tile: number;
  readonly lanes: number;
}

/**
 * Finds out whether V8's 256-bit fusion works here: the tile must give the bits of tier B and run faster than 128-bit
 * arithmetic can.
 * @returns Why tier C cannot be used; undefined where it can.
 */
export function selfTest(
  candidate: WebAssembly.Module,
  proven: WebAssembly.Module,
  shared: boolean,
  names: readonly string[],
): string | undefined {
  const expected = makeBench(proven, shared, names).sums();
  const bench = makeBench(candidate, shared, names);
  if (bench.sums() !== expected) return otherBits;
  let before = bestOfRound(bench);
  let now = before;
  // Two rounds that agree: one that V8 has optimised and one that it has not would compare badly.
  for (let round = 2; round <= mostRounds; round++) {
    before = now;
    now = bestOfRound(bench);
    const steady = Math.abs(now.lanes / before.lanes - 1) < 0.1;
    if (round > 3 && steady && gain(before) >= leastGain && gain(now) >= leastGain) break;
    if (round === mostRounds) {
      const found = `${gain(now).toFixed(2)} times as fast as 128 bits can`;
      return `tier b instead of c: the self-test ran ${found}, expected ${leastGain}`;
    }
  }
  return bench.sums() === expected ? undefined : otherBits;
}

const gain = (times: Times): number => times.lanes / times.tile;

function bestOfRound(bench: Bench): Times {
  const best = { tile: Number.POSITIVE_INFINITY, lanes: Number.POSITIVE_INFINITY };
  const begin = performance.now();
  while (performance.now() - begin < roundMilliseconds) {
    const { tile, lanes } = bench.time();
    best.tile = Math.min(best.tile, tile);
    best.lanes = Math.min(best.lanes, lanes);
  }
  return best;
}

/** Sets V8's flag for 256-bit fusion, or unsets it; it holds for the whole process. */
export function setFusion(node: NodeParts, on: boolean): void {
  node.v8.setFlagsFromString(`--${on ? "" : "no-"}${flag}`);
}

function makeBench(module: WebAssembly.Module, shared: boolean, names: readonly string[]): Bench {
  const memory = new WebAssembly.Memory({ initial: 32, maximum: 32, shared });
  const { exports, runtime } = instantiate(module, memory, names);
  const base = Math.ceil((runtime.heapBase.value as number) / 64) * 64;
  const words = new Uint32Array(memory.buffer, base);
  const floats = new Float32Array(memory.buffer, base);
  const a = 64;
  const b = a + 4 * inner;
  const y = b + 16 * inner;
  const at = (word: number) => base + 4 * word;
  words.set([at(a), at(b), at(y), inner], 0);
  words.set([at(y + 64), at(y + 64), inner], 16);
  // Reproducible and without structure: the golden section modulo one, around zero.
  for (let i = a; i < y; i++) floats[i] = ((i * 0.6180339887498949) % 1) - 0.5;
  const tile = exports["selfTest_tile_forward"] as unknown as KernelFunction;
  const lanes = exports["selfTest_lanes_forward"] as unknown as KernelFunction;
  const timed = (kernel: KernelFunction, args: number) => {
    const begin = performance.now();
    kernel(args, 0, jobs, 0);
    return (performance.now() - begin) * 1000;
  };
  return {
    sums: () => {
      tile(base, 0, 1, 0);
      return words.slice(y, y + 64).join();
    },
    time: () => ({ tile: timed(tile, base), lanes: timed(lanes, base + 64) }),
  };
}
