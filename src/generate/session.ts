import { ConfigError, DisposedError } from "../errors.ts";
import { type GenerateOptions, Generation } from "./generation.ts";
import type { LanguageModel } from "./language-model.ts";
import { loadState, saveState } from "./state-file.ts";

/** Options of `prefill`. */
export interface PrefillOptions {
  readonly signal?: AbortSignal;
  /** Called with the tokens done and in all. */
  readonly onProgress?: (done: number, total: number) => void;
  /** Tokens worked at once; 512 unless given. */
  readonly chunk?: number;
}

/**
 * One sequence that a model reads and continues, with its carried state.
 *
 * For models of recurrent layers the state has a fixed size whatever the session has read. Sessions of one model share
 * its weights and can be stepped together.
 */
export class Session {
  readonly model: LanguageModel;
  readonly #slot: number;
  #ids: number[] = [];
  #logits: Float32Array | undefined;
  readonly #marks = new Map<number, { readonly slot: number; readonly logits: Float32Array | undefined }>();
  #running = false;
  #isDisposed = false;

  constructor(model: LanguageModel, slot: number) {
    this.model = model;
    this.#slot = slot;
  }

  /** Ids of all tokens read and written so far. */
  get ids(): readonly number[] {
    return this.#ids;
  }

  /** Tokens read and written so far. */
  get position(): number {
    return this.#ids.length;
  }

  /** Bytes of the state: a constant part, and what caches add for every token. */
  get bytes(): { readonly constant: number; readonly perToken: number; readonly now: number } {
    const { bytesPerSequence: constant, bytesPerToken: perToken } = this.model.states;
    return { constant, perToken, now: constant + perToken * this.position };
  }

  /** Logits of the next token; undefined before anything was read. */
  get logits(): Float32Array | undefined {
    return this.#logits;
  }

  /** Where its state lies, for those that step sessions together. */
  get slot(): number {
    this.check();
    return this.#slot;
  }

  /** Reads a text or ids, in pieces. An aborted signal leaves the session where it got to. */
  async prefill(input: string | ArrayLike<number>, options: PrefillOptions = {}): Promise<void> {
    this.check();
    const ids = typeof input === "string" ? this.model.tokenizer.encode(input) : Int32Array.from(input);
    this.checkIds(ids);
    const chunk = options.chunk ?? 512;
    if (!Number.isInteger(chunk) || chunk < 1)
      throw new ConfigError(`[prefill] chunk is a whole number >= 1, got ${chunk}`);
    for (let from = 0; from < ids.length; from += chunk) {
      options.signal?.throwIfAborted();
      const piece = ids.slice(from, from + chunk);
      this.take(piece, this.model.advance([this.slot], piece, piece.length)[0]!);
      options.onProgress?.(Math.min(from + chunk, ids.length), ids.length);
      // Lets timers and signals in between pieces.
      if (from + chunk < ids.length) await new Promise((resolve) => setTimeout(resolve, 0));
    }
  }

  /** Reads one token and returns the logits of the next. */
  step(id: number): Float32Array {
    this.check();
    const ids = Int32Array.of(id);
    this.checkIds(ids);
    const logits = this.model.advance([this.slot], ids, 1)[0]!;
    this.take(ids, logits);
    return logits;
  }

  /** Notes what was read elsewhere: ids and the logits after them. */
  take(ids: ArrayLike<number>, logits: Float32Array): void {
    for (let i = 0; i < ids.length; i++) this.#ids.push(ids[i]!);
    this.#logits = logits;
  }

  /**
   * Continues the sequence. The result is both a promise of the whole and an async iterable of its pieces.
   *
   * @throws ConfigError when another generation of this session is still running or an option is out of range.
   */
  generate(options: GenerateOptions = {}): Generation {
    this.check();
    return new Generation(this, options, {
      begin: () => {
        if (this.#running) {
          throw new ConfigError(
            "[generate] another generation of this session is running",
            "Await it first, or fork the session.",
          );
        }
        this.#running = true;
      },
      end: () => {
        this.#running = false;
      },
    });
  }

  /** A session that continues from here by itself; its state is copied once. */
  fork(): Session {
    this.check();
    const other = this.model.session();
    this.model.states.copy(this.#slot, other.#slot);
    other.#ids = [...this.#ids];
    other.#logits = this.#logits;
    return other;
  }

  /** Keeps the state of this position; returns the position for `rollback`. Costs one copy of the state. */
  checkpoint(): number {
    this.check();
    this.forget(this.position);
    const slot = this.model.takeSlot();
    this.model.states.copy(this.#slot, slot);
    this.#marks.set(this.position, { slot, logits: this.#logits });
    return this.position;
  }

  /** Positions that can be rolled back to, ascending. */
  get checkpoints(): readonly number[] {
    return [...this.#marks.keys()].sort((a, b) => a - b);
  }

  /** Goes back to a checkpoint; it stays, later ones are forgotten. */
  rollback(position: number): void {
    this.check();
    const mark = this.#marks.get(position);
    if (mark === undefined) {
      throw new ConfigError(
        `[session] there is no checkpoint at position ${position}: expected one of ${this.checkpoints.join(", ") || "none"}`,
      );
    }
    this.model.states.copy(mark.slot, this.#slot);
    this.#ids.length = position;
    this.#logits = mark.logits;
    for (const later of this.checkpoints) if (later > position) this.forget(later);
  }

  /** Drops one checkpoint. */
  forget(position: number): void {
    const mark = this.#marks.get(position);
    if (mark === undefined) return;
    this.model.giveSlot(mark.slot);
    this.#marks.delete(position);
  }

  /** The session as bytes (a safetensors file): state, ids and logits. */
  save(): Promise<Uint8Array> {
    this.check();
    return saveState(this.model, this.#slot, this.#ids, this.#logits);
  }

  /**
   * Puts the session where the saved one was.
   *
   * @throws FormatError when the bytes are cut short or belong to another model or version; the session stays as it is.
   */
  load(bytes: Uint8Array): void {
    this.check();
    const { ids, logits } = loadState(this.model, this.#slot, bytes);
    this.#ids = ids;
    this.#logits = logits;
    for (const position of this.checkpoints) this.forget(position);
  }

  /** Gives the state back. */
  dispose(): void {
    if (this.#isDisposed) return;
    for (const position of this.checkpoints) this.forget(position);
    this.model.giveSlot(this.#slot);
    this.#isDisposed = true;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  private check(): void {
    if (this.#isDisposed) throw new DisposedError("[session] the session was disposed");
  }

  private checkIds(ids: ArrayLike<number>): void {
    const { vocabularySize } = this.model.decoder.config;
    for (let i = 0; i < ids.length; i++) {
      if (Number.isInteger(ids[i]!) && ids[i]! >= 0 && ids[i]! < vocabularySize) continue;
      throw new ConfigError(
        `[session] token ids are 0 to ${vocabularySize - 1}, got ${ids[i]} at position ${i}`,
      );
    }
  }
}
