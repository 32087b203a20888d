import { ConfigError, DisposedError } from "../errors.ts";
import { type GenerateOptions, Generation } from "./generation.ts";
import { History, type HistoryMark } from "./history.ts";
import type { LanguageModel } from "./language-model.ts";
import { idsOf, type PrefillOptions, readInto } from "./prefill.ts";
import { loadState, saveState } from "./state-file.ts";
import type { Stepper } from "./stepper.ts";

/** Options of `model.session()`. */
export interface SessionOptions {
  /** Ids that a session remembers of what it read and wrote: for `ids` and the repetition penalty. 8,192 unless given. */
  readonly history?: number;
}

interface Mark {
  readonly slot: number;
  readonly history: HistoryMark;
  readonly logits: Float32Array | undefined;
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
  readonly #history: History;
  readonly #marks = new Map<number, Mark>();
  #logits: Float32Array | undefined;
  /** What has the session to itself at the moment. */
  #claim: { readonly who: string; readonly isAhead: boolean } | undefined;
  #isDisposed = false;

  constructor(model: LanguageModel, slot: number, options: SessionOptions = {}) {
    const { history = 8192 } = options;
    if (!Number.isInteger(history) || history < 0)
      throw new ConfigError(`[session] history is a whole number >= 0, got ${history}`);
    this.model = model;
    this.#slot = slot;
    this.#history = new History(history);
  }

  /** Ids of the last tokens read and written, oldest first: all of them up to the session's `history`. */
  get ids(): Int32Array {
    return this.#history.ids;
  }

  /** Tokens read and written so far. */
  get position(): number {
    return this.#history.position;
  }

  get isDisposed(): boolean {
    return this.#isDisposed;
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

  /**
   * Reads a text or ids, in pieces. An aborted signal leaves the session where it got to.
   *
   * @throws ConfigError for ids outside the vocabulary, before anything is read, and while a generation is running.
   */
  async prefill(input: string | ArrayLike<number>, options: PrefillOptions = {}): Promise<void> {
    const release = this.claim("prefill");
    try {
      await readInto(this, input, options);
    } finally {
      release();
    }
  }

  /** Reads one token and returns the logits of the next. */
  step(id: number): Float32Array {
    this.checkFree("step");
    const ids = idsOf(this, [id]);
    const logits = this.model.advance([this.#slot], ids)[0]!;
    this.take(ids, logits);
    return logits;
  }

  /** Notes what was read elsewhere: ids and the logits after them. */
  take(ids: ArrayLike<number>, logits: Float32Array): void {
    for (let i = 0; i < ids.length; i++) this.#history.push(ids[i]!);
    this.#logits = logits;
  }

  /**
   * Continues the sequence. The result is both a promise of the whole and an async iterable of its pieces; work begins
   * when it is awaited or iterated over, and leaving the loop ends it.
   *
   * @param stepper What feeds its tokens, such as a batch; itself unless given.
   * @throws ConfigError for an option out of range; when work begins, also while something else runs on the session.
   */
  generate(options: GenerateOptions = {}, stepper?: Stepper): Generation {
    this.check();
    return new Generation(this, options, stepper);
  }

  /**
   * Has the session to itself until the returned function is called.
   *
   * @param isAhead The state runs ahead of what the session says it has read: nobody may copy it meanwhile.
   * @throws ConfigError while something else has it.
   */
  claim(who: string, isAhead = false): () => void {
    this.checkFree(who);
    this.#claim = { who, isAhead };
    return () => {
      this.#claim = undefined;
    };
  }

  /** A session that continues from here by itself; its state is copied once. */
  fork(): Session {
    this.checkCopy("fork");
    const other = this.model.session();
    this.model.states.copy(this.#slot, other.#slot);
    other.#history.restore(this.#history.mark());
    other.#logits = this.#logits;
    return other;
  }

  /** Keeps the state of this position; returns the position for `rollback`. Costs one copy of the state. */
  checkpoint(): number {
    this.checkCopy("checkpoint");
    this.forget(this.position);
    const slot = this.model.takeSlot();
    this.model.states.copy(this.#slot, slot);
    this.#marks.set(this.position, { slot, history: this.#history.mark(), logits: this.#logits });
    return this.position;
  }

  /** Positions that can be rolled back to, ascending. */
  get checkpoints(): readonly number[] {
    return [...this.#marks.keys()].sort((a, b) => a - b);
  }

  /** Goes back to a checkpoint; it stays, later ones are forgotten. */
  rollback(position: number): void {
    this.checkFree("rollback");
    const mark = this.#marks.get(position);
    if (mark === undefined) {
      throw new ConfigError(
        `[session] there is no checkpoint at position ${position}: expected one of ${this.checkpoints.join(", ") || "none"}`,
      );
    }
    this.model.states.copy(mark.slot, this.#slot);
    this.#history.restore(mark.history);
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

  /** The session as bytes (a safetensors file): state, position, remembered ids and logits, as they are at this moment. */
  save(): Promise<Uint8Array> {
    this.checkCopy("save");
    return saveState(this.model, this.#slot, this.#history.mark(), this.#logits);
  }

  /**
   * Puts the session where the saved one was.
   *
   * @throws FormatError when the bytes are cut short or belong to another model or version; the session stays as it is.
   */
  load(bytes: Uint8Array): void {
    this.checkFree("load");
    const { history, logits } = loadState(this.model, this.#slot, bytes);
    this.#history.restore(history);
    this.#logits = logits;
    for (const position of this.checkpoints) this.forget(position);
  }

  /** Gives the state back; what still runs on the session ends with a DisposedError. */
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

  private checkFree(who: string): void {
    this.check();
    if (this.#claim !== undefined) throw this.busy(who, this.#claim.who);
  }

  private checkCopy(who: string): void {
    this.check();
    if (this.#claim?.isAhead) throw this.busy(who, this.#claim.who);
  }

  private busy(who: string, other: string): ConfigError {
    return new ConfigError(
      `[${who}] the session is busy: expected nothing else at work on it, got a running ${other}`,
      "Await it first, or fork the session before it begins.",
    );
  }
}
