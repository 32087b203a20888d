import { DeviceError, ShapeError } from "../../errors.ts";
import type { Device, Dispatch, Storage } from "../device.ts";
import { checkRange } from "../lifetime.ts";
import { argumentWords, control, queueWords, threadBytes } from "./control.ts";
import type { Block } from "./heap.ts";
import type { Instance, KernelFunction } from "./module.ts";
import type { Pool } from "./pool.ts";
import type { WasmStorage } from "./storage.ts";
import type { Store } from "./store.ts";

/** Below this many multiply-adds a job is over before another thread has taken its share. */
const threadedWork = 2 ** 19;

/** The counter that hands out units stays far from the sign bit. */
const maximumUnits = 2 ** 30;

/** Nothing is slower than this, not even on a busy machine: what takes longer than its work allows is stuck. */
const slowestPerMillisecond = 10_000;

/** A job this large is always shared: it outlasts whatever the system may do to a thread. */
const alwaysShared = 2 ** 26;

/** A job below this should not keep anybody waiting long enough to notice. */
const shortWork = 2 ** 22;

/** Milliseconds that jobs are kept to the caller's thread after the others were found short of a processor. */
const shortestRest = 2;
const longestRest = 500;

/**
 * So many jobs wait at most before all are done in one go. JavaScript between two kernels finds the caches as the first
 * one left them and costs several times what it does in a row; a thread that waits for the next job must not fall asleep.
 */
const longestQueue = 64;

/** What an executor runs on. */
export interface Engine {
  readonly instance: Instance;
  readonly names: readonly string[];
  readonly store: Store;
  /** The control block, arguments behind it. */
  readonly block: Block;
  readonly threads: number;
  readonly poison: boolean;
  readonly workerTimeoutMs: number;
  readonly pool: Pool | undefined;
}

interface Entry {
  readonly kernel: KernelFunction;
  readonly index: number;
}

/** How a job is cut. */
type Cut = Pick<Dispatch, "units" | "work" | "scratchBytes">;

/** A job whose arguments lie in memory already. */
export interface PreparedJob {
  readonly entry: Entry;
  readonly key: string;
  readonly args: number;
  readonly units: number;
  readonly work: number;
  readonly scratchBytes: number;
}

/** Words that the arguments of a job take. */
export function wordsOf({ buffers, ints, floats }: Dispatch): number {
  return buffers.length + ints.length + floats.length;
}

/**
 * Turns dispatches into calls of kernels, in the order they came: on the caller's thread, or shared out where the work is
 * worth it. They wait until somebody looks at memory or many have gathered.
 */
export class Executor {
  readonly #engine: Engine;
  readonly #device: Device;
  readonly #unusable: (who: string, storage: Storage) => Error;
  readonly #entries = new Map<string, Entry>();
  readonly #scratch: (Block | undefined)[] = [];
  /** Address of the arguments of those that wait. */
  readonly #args: number;
  readonly #queue: PreparedJob[] = [];
  #queuedWords = 0;
  /** What went wrong where nobody could be told. */
  #failure: Error | undefined;
  pool: Pool | undefined;
  dispatches = 0;
  /** Until when jobs are done alone, and for how long after the next disappointment. */
  #restUntil = 0;
  #nextRest = shortestRest;

  constructor(engine: Engine, device: Device, unusable: (who: string, storage: Storage) => Error) {
    this.#engine = engine;
    this.#device = device;
    this.#unusable = unusable;
    this.pool = engine.pool;
    this.#args = engine.block.address + control.threads + engine.threads * threadBytes;
    for (const [i, name] of engine.names.entries()) {
      const kernel = engine.instance.exports[name] as unknown as KernelFunction;
      this.#entries.set(name.replaceAll("_", "."), { kernel, index: engine.instance.firstKernel + i });
    }
  }

  /** Keys of all kernels here. */
  get keys(): ReadonlyMap<string, unknown> {
    return this.#entries;
  }

  /** Takes a job in; false where there is no such kernel. */
  run(dispatch: Dispatch): boolean {
    if (!this.#entries.has(dispatch.kernel.key)) return false;
    const words = wordsOf(dispatch);
    if (this.#queue.length === longestQueue || this.#queuedWords + words > queueWords) this.settle();
    this.#reserve(dispatch.kernel.key, dispatch);
    const job = this.prepare(dispatch, this.#args + 4 * this.#queuedWords);
    this.dispatches++;
    this.#queuedWords += words;
    this.#queue.push(job);
    // New memory is filled with NaN from outside: whoever still reads what lay there must have done so.
    if (this.#engine.poison) this.settle();
    return true;
  }

  /** Does all that waits. Where one job fails those behind it are dropped. */
  settle(): void {
    const failure = this.#failure;
    this.#failure = undefined;
    this.#queuedWords = 0;
    try {
      if (failure !== undefined) throw failure;
      for (const job of this.#queue) this.#do(job);
    } finally {
      this.#queue.length = 0;
    }
  }

  /** The same where an error must wait for whoever comes next. */
  settleQuietly(): void {
    try {
      this.settle();
    } catch (error) {
      this.#failure = error as Error;
    }
  }

  /**
   * Scratch memory is taken while the heap is as the job finds it: later, what a waiting job reads may have been
   * released already.
   */
  #reserve(who: string, job: Cut): void {
    const { scratchBytes } = job;
    const shared = this.#isShared(job);
    if (shared && this.pool!.lost !== undefined) throw lostError(who, this.pool!.lost);
    if (scratchBytes <= 0) return;
    const threads = shared ? this.pool!.threads : 1;
    for (let thread = 0; thread < threads; thread++) {
      if ((this.#scratch[thread]?.bytes ?? 0) >= scratchBytes) continue;
      this.settle();
      this.#enlargeScratch(thread, scratchBytes);
    }
  }

  /** Writes the arguments of a job to where they stay; the kernel is known to be here. */
  prepare(dispatch: Dispatch, args: number): PreparedJob {
    const { kernel, units, work, scratchBytes } = dispatch;
    this.#writeArguments(dispatch, args);
    return { entry: this.#entries.get(kernel.key)!, key: kernel.key, args, units, work, scratchBytes };
  }

  /** Runs a prepared job to its end; nothing waits before it. */
  runPrepared(job: PreparedJob): void {
    this.dispatches++;
    this.#do(job);
  }

  #do(job: PreparedJob): void {
    if (job.units <= 0) return;
    if (this.#isShared(job) && !this.#rests(job.work)) this.#runThreaded(this.pool!, job);
    else this.#runHere(job);
  }

  /** Whether a job is worth sharing out on a machine that is not busy. */
  #isShared({ units, work }: Cut): boolean {
    return this.pool !== undefined && work >= threadedWork && units > 1 && units <= maximumUnits;
  }

  #rests(work: number): boolean {
    if (this.#restUntil === 0 || work >= alwaysShared) return false;
    if (performance.now() < this.#restUntil) return true;
    this.#restUntil = 0;
    return false;
  }

  /**
   * On a busy machine a thread may lose its processor inside a job and hold everybody up for milliseconds. Where
   * that happens small jobs stay with the caller for a while, for longer each time.
   */
  #learn(outcome: number, work: number): void {
    if (outcome === 4 ? work < alwaysShared : outcome === 3 && work < shortWork) {
      this.#restUntil = performance.now() + this.#nextRest;
      this.#nextRest = Math.min(2 * this.#nextRest, longestRest);
    } else if (this.#nextRest > shortestRest) this.#nextRest *= 0.75;
  }

  #writeArguments(dispatch: Dispatch, address: number): void {
    const { buffers, ints, floats, kernel } = dispatch;
    if (wordsOf(dispatch) > argumentWords) throw tooManyArguments(dispatch);
    const { words, floats: lanes } = this.#engine.store;
    let at = address >>> 2;
    for (let i = 0; i < buffers.length; i++) {
      const { storage, offset } = buffers[i]!;
      const own = storage as WasmStorage;
      if (own.device !== this.#device || !own.life.open) throw this.#unusable(kernel.key, storage);
      if (!(offset >= 0 && offset <= own.length)) checkRange(kernel.key, buffers[i]!, 0);
      words[at++] = own.address + offset * own.width;
    }
    for (let i = 0; i < ints.length; i++) words[at++] = ints[i]!;
    for (let i = 0; i < floats.length; i++) lanes[at++] = floats[i]!;
  }

  #runHere({ entry, key, args, units, scratchBytes }: PreparedJob): void {
    const scratch = scratchBytes > 0 ? this.#scratchOf(0, scratchBytes) : 0;
    try {
      entry.kernel(args, 0, units, scratch);
    } catch (error) {
      throw trapError(key, error);
    }
  }

  #runThreaded(pool: Pool, { entry, key: who, args, units, work, scratchBytes }: PreparedJob): void {
    const { instance, block, workerTimeoutMs } = this.#engine;
    if (pool.lost !== undefined) throw lostError(who, pool.lost);
    if (scratchBytes > 0) {
      for (let thread = 0; thread < pool.threads; thread++) this.#scratchOf(thread, scratchBytes);
    }
    const patience = Math.min(workerTimeoutMs + work / slowestPerMillisecond, 2 ** 31 - 1);
    const shares = 2 * pool.threads;
    let outcome: number;
    try {
      outcome = instance.runtime.dispatch(block.address, entry.index, args, units, shares, patience);
    } catch (error) {
      this.#settle(who, pool, instance.runtime.finish(block.address, patience));
      throw trapError(who, error);
    }
    this.#learn(outcome, work);
    this.#settle(who, pool, outcome);
  }

  /** Turns what the runtime reports into an error: 1 a worker trapped, 2 a worker is gone. */
  #settle(who: string, pool: Pool, outcome: number): void {
    if (outcome === 0 || outcome > 2) return;
    if (outcome === 1) throw trapError(who, pool.trapText());
    pool.lost ??= `no unit was done for ${this.#engine.workerTimeoutMs} ms and more`;
    pool.close();
    throw lostError(who, pool.lost);
  }

  #enlargeScratch(thread: number, bytes: number): Block {
    const { store } = this.#engine;
    const block = this.#scratch[thread];
    const larger = store.takeRun("device.run", bytes);
    if (block !== undefined) store.heap.give(block);
    this.#scratch[thread] = larger;
    this.pool?.setScratch(thread, larger.address);
    return larger;
  }

  /** A thread's scratch memory: as large as the largest that was asked for. */
  #scratchOf(thread: number, bytes: number): number {
    const { store, poison } = this.#engine;
    let block = this.#scratch[thread];
    if (block === undefined || block.bytes < bytes) block = this.#enlargeScratch(thread, bytes);
    if (poison) {
      // What was asked for and some behind it: a kernel that reaches further than it said reads NaN too.
      const reach = Math.min(block.bytes, bytes + 4096);
      new Float32Array(store.buffer, block.address, reach >> 2).fill(Number.NaN);
    }
    return block.address;
  }
}

function tooManyArguments(dispatch: Dispatch): ShapeError {
  return new ShapeError(
    `[${dispatch.kernel.key}] too many arguments: expected at most ${argumentWords}, got ${wordsOf(dispatch)}`,
  );
}

function trapError(who: string, cause: unknown): DeviceError {
  const text = cause instanceof Error ? cause.message : `${cause}`;
  return new DeviceError(
    `[${who}] the kernel trapped: expected it to finish, got "${text}"`,
    "This is a fault in the kernel or its arguments; the device stays usable, the outputs are not",
    { cause },
  );
}

function lostError(who: string, why: string): DeviceError {
  return new DeviceError(
    `[${who}] a thread of the device was lost: expected all to answer, got ${why}`,
    "Values can still be read; close the device and open another",
  );
}
