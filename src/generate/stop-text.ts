/**
 * Text that ends before the first of some strings, given piece by piece.
 *
 * The string that is complete first ends it, and of those complete at the same character the longest: however the text is
 * cut into pieces, the same text is shown.
 */
export class StopText {
  readonly #stops: readonly string[];
  #held = "";
  #isMet = false;

  /** An empty string ends nothing. */
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
    if (this.#stops.length === 0) return piece;
    const text = this.#held + piece;
    const begin = firstStop(text, this.#stops);
    if (begin !== undefined) {
      this.#isMet = true;
      this.#held = "";
      return text.slice(0, begin);
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

/** Where the string begins that is complete first; undefined where none is. */
function firstStop(text: string, stops: readonly string[]): number | undefined {
  let begin: number | undefined;
  let end = Number.POSITIVE_INFINITY;
  for (const stop of stops) {
    const at = text.indexOf(stop);
    if (at < 0 || at + stop.length > end) continue;
    if (at + stop.length === end && begin !== undefined && begin <= at) continue;
    begin = at;
    end = at + stop.length;
  }
  return begin;
}

/** Length of the longest end of `text` that `stop` begins with. */
function overlap(text: string, stop: string): number {
  for (let length = Math.min(stop.length - 1, text.length); length > 0; length--) {
    if (stop.startsWith(text.slice(text.length - length))) return length;
  }
  return 0;
}
