/** Text that ends before the first of some strings, given piece by piece. Overlapping strings end it at the earliest. */
export class StopText {
  readonly #stops: readonly string[];
  #held = "";
  #isMet = false;

  constructor(stops: string | readonly string[] = []) {
    this.#stops = (typeof stops === "string" ? [stops] : stops).filter((stop) => stop !== "");
  }

  /** Whether one of the strings has come. */
  get isMet(): boolean {
    return this.#isMet;
  }

  /** Adds a piece; returns what is certain to be shown. What may be the beginning of a stop is held back. */
  push(piece: string): string {
    if (this.#isMet) return "";
    const text = this.#held + piece;
    let first = text.length;
    for (const stop of this.#stops) {
      const at = text.indexOf(stop);
      if (at >= 0 && at < first) first = at;
    }
    if (first < text.length) {
      this.#isMet = true;
      this.#held = "";
      return text.slice(0, first);
    }
    const held = this.#stops.reduce((most, stop) => Math.max(most, overlap(text, stop)), 0);
    this.#held = text.slice(text.length - held);
    return text.slice(0, text.length - held);
  }

  /** What was held back, once nothing follows. */
  end(): string {
    const held = this.#held;
    this.#held = "";
    return held;
  }
}

/** Length of the longest end of `text` that `stop` begins with. */
function overlap(text: string, stop: string): number {
  for (let length = Math.min(stop.length - 1, text.length); length > 0; length--) {
    if (stop.startsWith(text.slice(text.length - length))) return length;
  }
  return 0;
}
