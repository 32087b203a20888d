/** A key-value cache by itself: what a session of softmax attention keeps, outside of any layer. */
import { scope } from "../../autograd/scope.ts";
import { noGrad } from "../../autograd/tape.ts";
import { full, type Tensor, tensor } from "../../autograd/tensor.ts";
import type { Device } from "../../device/device.ts";
import { ConfigError, DisposedError } from "../../errors.ts";
import { solveAxes } from "../../tensor/axes.ts";
import { bytesPerElement } from "../../tensor/dtype.ts";
import { takeSlots } from "../recurrence/slab.ts";
import { attentionOverCache, type CacheSlabs, entriesOf, writeCache } from "./cache.ts";

/** What a cache holds, and how much of it. */
export interface KeyValueCacheOptions {
  /** HKV. */
  readonly keyHeads: number;
  /** K. */
  readonly keyWidth: number;
  /** V; K unless given. */
  readonly valueWidth?: number;
  /** B, sequences that advance together; 1 unless given. */
  readonly batch?: number;
  /** The most tokens that may be held; no limit unless given. */
  readonly limit?: number;
  /** A token sees itself and the window − 1 before it, and older ones are forgotten; everything unless given. */
  readonly window?: number;
}

const who = "keyValueCache";
const firstCapacity = 64;

/**
 * Keys and values of what was seen, for exact attention token after token at the cost of reading them once.
 *
 * Memory doubles as tokens come, up to `limit`; with a window it stays as it is. A fork shares nothing with its origin,
 * and truncation takes the newest tokens back. Positions count from the beginning of the sequence. No gradients.
 *
 * @example
 * const cache = new KeyValueCache(device, { keyHeads: 2, keyWidth: 4 });
 * const one = full(device, [1, 1, 2, 4], 1);
 * const output = cache.extend(one, one, one);
 */
export class KeyValueCache {
  readonly device: Device;
  readonly #options: KeyValueCacheOptions & { readonly batch: number; readonly valueWidth: number };
  #slabs: CacheSlabs | undefined;
  #capacity: number;
  #start = 0;
  #length = 0;
  #lost: number | undefined;

  /** @throws ConfigError for sizes, a limit or a window that are no whole numbers >= 1. */
  constructor(device: Device, options: KeyValueCacheOptions) {
    const { batch = 1, valueWidth = options.keyWidth } = options;
    this.device = device;
    this.#options = { ...options, batch, valueWidth };
    for (const [name, value] of Object.entries(this.#options)) {
      if (value === undefined || (Number.isInteger(value) && value >= 1)) continue;
      throw new ConfigError(`[${who}] ${name}: expected a whole number >= 1, got ${value}`);
    }
    const { limit = Number.POSITIVE_INFINITY, window = 0 } = options;
    this.#capacity = Math.min(limit, Math.max(firstCapacity, 2 * window));
    this.#slabs = this.create(this.#capacity);
  }

  /** Tokens seen so far, forgotten ones included. */
  get length(): number {
    return this.#length;
  }

  /** The first token that is still held. */
  get start(): number {
    return this.#start;
  }

  /** Bytes that the cache takes, room for tokens to come included. */
  get bytes(): number {
    const { keys, values } = this.slabs();
    return bytesPerElement(keys.dtype) * (keys.size + values.size);
  }

  /**
   * Takes in the next tokens `k [B,T,HKV,K]`, `v [B,T,HKV,V]`, and returns what their queries `q [B,T,HQ,K]` read,
   * `[B,T,HQ,V]`: each sees what came before it and itself.
   *
   * @throws ConfigError over the limit, which changes nothing, and after a truncation beyond the start; ShapeError where
   * axes disagree.
   */
  extend(q: Tensor, k: Tensor, v: Tensor, options: { readonly scale?: number } = {}): Tensor {
    const { batch, keyHeads, keyWidth, valueWidth, window } = this.#options;
    const { T } = solveAxes(
      who,
      {
        q: { shape: q.shape, axes: "B T HQ K" },
        k: { shape: k.shape, axes: "B T HKV K" },
        v: { shape: v.shape, axes: "B T HKV V" },
      },
      { B: batch, HKV: keyHeads, K: keyWidth, V: valueWidth },
    );
    this.checkUsable();
    return this.quietly(() => {
      this.makeRoom(T);
      const held = this.#length - this.#start;
      const slabs = this.slabs();
      const entries = this.entries(held, held + T);
      writeCache(slabs.keys, entries, k);
      writeCache(slabs.values, entries, v);
      this.#length += T;
      const each = (value: (b: number) => number): Tensor =>
        this.integers(Array.from({ length: batch }, (_, b) => value(b)));
      const view = { slots: each((b) => b), lengths: each(() => held + T), longest: held + T };
      return attentionOverCache(q, slabs, view, { scale: options.scale, window });
    });
  }

  /**
   * Takes back all but the first `length` tokens. Where a window has forgotten what those need, every use throws until
   * the cache is truncated to 0, which begins anew.
   *
   * @throws ConfigError for a length that is none, or more than there is.
   */
  truncate(length: number): void {
    this.slabs();
    if (!Number.isInteger(length) || length < 0 || length > this.#length) {
      throw new ConfigError(
        `[${who}] truncate keeps the first tokens: expected 0 to ${this.#length}, got ${length}`,
      );
    }
    this.#lost = undefined;
    if (length === 0) this.#start = 0;
    else if (this.#start > Math.max(0, length + 1 - (this.#options.window ?? 0))) this.#lost = length;
    this.#length = length;
  }

  /** A copy that goes on by itself. */
  fork(): KeyValueCache {
    this.checkUsable();
    const copy = new KeyValueCache(this.device, this.#options);
    copy.#slabs?.keys.dispose();
    copy.#slabs?.values.dispose();
    copy.#slabs = this.quietly(() => this.copied(this.#capacity));
    copy.#capacity = this.#capacity;
    copy.#start = this.#start;
    copy.#length = this.#length;
    return copy;
  }

  /** Frees the memory. */
  dispose(): void {
    this.#slabs?.keys.dispose();
    this.#slabs?.values.dispose();
    this.#slabs = undefined;
  }

  /** Without gradients, and without what was made on the way. */
  private quietly<Result>(fn: () => Result): Result {
    return scope(this.device, () => noGrad(fn));
  }

  private slabs(): CacheSlabs {
    if (this.#slabs !== undefined) return this.#slabs;
    throw new DisposedError(`[${who}] the cache was disposed`);
  }

  private checkUsable(): void {
    this.slabs();
    if (this.#lost === undefined) return;
    throw new ConfigError(
      `[${who}] truncated beyond its start: expected the window before token ${this.#lost} to be held, but tokens before ${this.#start} are forgotten`,
      "Truncate to 0 and feed the sequence again, or fork before going on.",
    );
  }

  private makeRoom(tokens: number): void {
    const { limit = Number.POSITIVE_INFINITY, window } = this.#options;
    const held = this.#length - this.#start;
    if (held + tokens <= this.#capacity) return;
    // The next token sees itself and the window − 1 before it.
    const kept = window === undefined ? held : Math.min(held, window - 1);
    if (kept + tokens > limit) {
      throw new ConfigError(
        `[${who}] the cache is over its limit: expected at most ${limit} tokens, got ${kept} and ${tokens} more`,
        "Raise the limit, give it a window, or truncate it first.",
      );
    }
    const capacity = kept + tokens <= this.#capacity ? this.#capacity : Math.min(limit, 2 * (kept + tokens));
    const fresh = this.copied(capacity, held - kept);
    this.dispose();
    this.#slabs = fresh;
    this.#capacity = capacity;
    this.#start += held - kept;
  }

  /** What is held from an entry on, in slabs of their own. */
  private copied(capacity: number, from = 0): CacheSlabs {
    const fresh = this.create(capacity);
    const held = this.#length - this.#start;
    const before = this.entries(from, held);
    const after = this.entries(0, held - from, capacity);
    const { keys, values } = this.slabs();
    writeCache(fresh.keys, after, takeSlots(entriesOf(keys), before));
    writeCache(fresh.values, after, takeSlots(entriesOf(values), before));
    return fresh;
  }

  private create(capacity: number): CacheSlabs {
    const { batch, keyHeads, keyWidth, valueWidth } = this.#options;
    const slab = (width: number): Tensor =>
      full(this.device, [batch, capacity, keyHeads, width], 0, { persistent: true });
    return { keys: slab(keyWidth), values: slab(valueWidth) };
  }

  /** Places [from, to) of every row. */
  private entries(from: number, to: number, capacity = this.#capacity): Tensor {
    const { batch } = this.#options;
    const list: number[] = [];
    for (let b = 0; b < batch; b++) for (let t = from; t < to; t++) list.push(b * capacity + t);
    return this.integers(list);
  }

  private integers(list: readonly number[]): Tensor {
    return tensor(this.device, list, [list.length], { dtype: "int32" });
  }
}
