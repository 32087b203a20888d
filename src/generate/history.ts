/** What a sequence looked like at some position. */
export interface HistoryMark {
  readonly position: number;
  readonly ids: Int32Array;
}

/** How long a sequence is, and its last ids: memory ends at a limit, however long it gets. */
export class History {
  readonly #limit: number;
  /** The last `#kept` entries before `#end` count; moved to the front when the end is reached. */
  #buffer = new Int32Array(64);
  #end = 0;
  #position = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Tokens so far. */
  get position(): number {
    return this.#position;
  }

  /** The last ids, oldest first: all of them up to the limit. */
  get ids(): Int32Array {
    return this.#buffer.subarray(Math.max(0, this.#end - this.#limit), this.#end);
  }

  /** Adds one more token. */
  push(id: number): void {
    this.#position++;
    if (this.#limit === 0) return;
    if (this.#end === this.#buffer.length) this.makeRoom();
    this.#buffer[this.#end++] = id;
  }

  /** This moment, to come back to. */
  mark(): HistoryMark {
    return { position: this.#position, ids: this.ids.slice() };
  }

  /** Goes to a moment of this or of another sequence. */
  restore({ position, ids }: HistoryMark): void {
    this.#end = 0;
    for (const id of ids) this.push(id);
    this.#position = position;
  }

  private makeRoom(): void {
    if (this.#buffer.length < 2 * this.#limit) {
      const larger = new Int32Array(Math.min(2 * this.#limit, 2 * this.#buffer.length));
      larger.set(this.#buffer);
      this.#buffer = larger;
      return;
    }
    this.#buffer.copyWithin(0, this.#end - this.#limit, this.#end);
    this.#end = this.#limit;
  }
}
