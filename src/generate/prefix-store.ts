import { ConfigError } from "../errors.ts";
import type { LanguageModel } from "./language-model.ts";
import { idsOf, type PrefillOptions, readInto } from "./prefill.ts";
import type { Session, SessionOptions } from "./session.ts";
import { Snapshot } from "./snapshot.ts";

/** Options of a prefix store. */
export interface PrefixStoreOptions {
  /** Bytes that kept states may take together; those used longest ago go first. 64 MiB unless given. */
  readonly maxBytes?: number;
  /** A state is kept after every so many tokens of a prompt, and at its end; 256 unless given. */
  readonly every?: number;
}

/** What a store did so far. */
export interface PrefixReport {
  /** Prompts of which a beginning was there, and those of which none was. */
  readonly hits: number;
  readonly misses: number;
  /** Tokens that were not read again. */
  readonly savedTokens: number;
  readonly entries: number;
  readonly bytes: number;
}

interface Entry {
  readonly ids: Int32Array;
  readonly snapshot: Snapshot;
  readonly logits: Float32Array;
  readonly bytes: number;
}

/**
 * States of the beginnings of prompts: what many prompts have in common is read once.
 *
 * A prompt is read in pieces of `every` tokens whether or not a beginning is there, so that a session opened from a kept
 * state has the bits of one that read everything.
 *
 * @example
 * const store = new PrefixStore(model, { every: 4 });
 * const first = await store.open("Call me Ishmael");
 * const second = await store.open("Call me later");
 * console.log(store.report().savedTokens);
 */
export class PrefixStore {
  readonly model: LanguageModel;
  readonly #maxBytes: number;
  readonly #every: number;
  /** By hash of the ids; the one used last at the end. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;
  #hits = 0;
  #misses = 0;
  #savedTokens = 0;

  constructor(model: LanguageModel, options: PrefixStoreOptions = {}) {
    const { maxBytes = 64 * 2 ** 20, every = 256 } = options;
    if (!(maxBytes >= 0)) throw new ConfigError(`[prefixStore] maxBytes is a number >= 0, got ${maxBytes}`);
    if (!Number.isInteger(every) || every < 1)
      throw new ConfigError(`[prefixStore] every is a whole number >= 1, got ${every}`);
    this.model = model;
    this.#maxBytes = maxBytes;
    this.#every = every;
  }

  /** A session that has read the prompt: its longest kept beginning from the store, the rest anew. */
  async open(
    prompt: string | ArrayLike<number>,
    options: Omit<PrefillOptions, "chunk"> & SessionOptions = {},
  ): Promise<Session> {
    const { signal, onProgress, ...own } = options;
    const session = this.model.session(own);
    try {
      const ids = idsOf(session, prompt);
      signal?.throwIfAborted();
      const keys = this.keysOf(ids);
      const from = this.resume(session, ids, keys);
      for (const { end, key } of keys) {
        if (end <= from) continue;
        const begin = end - ((end - 1) % this.#every) - 1;
        await readInto(session, ids.slice(begin, end), signal === undefined ? {} : { signal });
        this.keep(key, ids.slice(0, end), session);
        onProgress?.(end, ids.length);
      }
      return session;
    } catch (error) {
      session.dispose();
      throw error;
    }
  }

  /** What it did so far, and what it holds. */
  report(): PrefixReport {
    const counts = { hits: this.#hits, misses: this.#misses, savedTokens: this.#savedTokens };
    return { ...counts, entries: this.#entries.size, bytes: this.#bytes };
  }

  /** Forgets everything. */
  clear(): void {
    for (const { snapshot } of this.#entries.values()) snapshot.dispose();
    this.#entries.clear();
    this.#bytes = 0;
  }

  /** Where states are kept of these ids, ascending, and under which key. */
  private keysOf(ids: Int32Array): { readonly end: number; readonly key: string }[] {
    const keys: { end: number; key: string }[] = [];
    let hash = 0x811c9dc5;
    for (let i = 0; i < ids.length; i++) {
      hash = Math.imul(hash ^ ids[i]!, 0x01000193) >>> 0;
      const end = i + 1;
      if (end % this.#every === 0 || end === ids.length) keys.push({ end, key: `${end} ${hash}` });
    }
    return keys;
  }

  /** Puts the session to the end of the longest kept beginning; how many tokens that is. */
  private resume(session: Session, ids: Int32Array, keys: readonly { readonly key: string }[]): number {
    for (let i = keys.length - 1; i >= 0; i--) {
      const { key } = keys[i]!;
      const entry = this.#entries.get(key);
      if (entry === undefined || !entry.ids.every((id, at) => id === ids[at])) continue;
      this.#entries.delete(key);
      this.#entries.set(key, entry);
      entry.snapshot.putInto(session.slot);
      session.take(entry.ids, entry.logits);
      this.#hits++;
      this.#savedTokens += entry.ids.length;
      return entry.ids.length;
    }
    if (keys.length > 0) this.#misses++;
    return 0;
  }

  private keep(key: string, ids: Int32Array, session: Session): void {
    const logits = session.logits!;
    const { constant, perToken } = session.bytes;
    const bytes = constant + perToken * ids.length + 4 * (ids.length + logits.length);
    if (bytes > this.#maxBytes) return;
    this.drop(key);
    while (this.#bytes + bytes > this.#maxBytes) this.drop(this.#entries.keys().next().value!);
    const snapshot = new Snapshot(this.model.states, session.slot);
    this.#entries.set(key, { ids, snapshot, logits: logits.slice(), bytes });
    this.#bytes += bytes;
  }

  private drop(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    entry.snapshot.dispose();
    this.#entries.delete(key);
    this.#bytes -= entry.bytes;
  }
}
