import { FormatError } from "../errors.ts";

/** What a header says of one tensor, before it is checked. */
export interface RawTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly offsets: readonly number[];
}

/** Names and texts of errors, quoted and cut to a line. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 79)}…` : text);
}

/** A header as it is written, in its own order. */
export interface RawHeader {
  readonly metadata: ReadonlyMap<string, string>;
  readonly tensors: ReadonlyMap<string, RawTensor>;
}

/**
 * Reads the JSON of a safetensors header, and nothing else: an object of tensors `{ dtype, shape, data_offsets }` and
 * one text-to-text map `__metadata__`. Nesting beyond that, keys that repeat or are unknown, and numbers that are not
 * plain whole ones under 2^53 are refused, which a general JSON parser would let pass.
 *
 * Throws FormatError with the place in the text.
 */
export function readHeaderJson(text: string, file: string): RawHeader {
  return new Cursor(text, file).header();
}

const zero = "0".charCodeAt(0);

class Cursor {
  readonly #file: string;
  readonly #text: string;
  #at = 0;

  constructor(text: string, file: string) {
    this.#text = text;
    this.#file = file;
  }

  header(): RawHeader {
    let metadata: Map<string, string> | undefined;
    const tensors = new Map<string, RawTensor>();
    if (this.#text[0] !== "{") this.#refuse("{ at the very beginning");
    this.#object((key) => {
      if (key === "__metadata__") {
        if (metadata !== undefined) this.#refuse("__metadata__ once");
        metadata = this.#metadata();
      } else {
        if (tensors.has(key)) this.#refuse(`each tensor once, not ${quote(key)} again`);
        tensors.set(key, this.#tensor(key));
      }
    });
    this.#skipBlank();
    if (this.#at < this.#text.length) this.#refuse("nothing but blanks after the closing brace");
    return { metadata: metadata ?? new Map(), tensors };
  }

  #metadata(): Map<string, string> {
    const metadata = new Map<string, string>();
    this.#object((key) => {
      if (metadata.has(key)) this.#refuse(`each key of __metadata__ once, not ${quote(key)} again`);
      metadata.set(key, this.#string("a string"));
    });
    return metadata;
  }

  #tensor(name: string): RawTensor {
    let dtype: string | undefined;
    let shape: number[] | undefined;
    let offsets: number[] | undefined;
    this.#object((key) => {
      if (key === "dtype" && dtype === undefined) dtype = this.#string("the name of a dtype");
      else if (key === "shape" && shape === undefined) shape = this.#numbers();
      else if (key === "data_offsets" && offsets === undefined) offsets = this.#numbers();
      else this.#refuse(`dtype, shape and data_offsets once each for ${quote(name)}, not ${quote(key)}`);
    });
    if (dtype === undefined || shape === undefined || offsets === undefined) {
      return this.#refuse(`dtype, shape and data_offsets for ${quote(name)}`);
    }
    return { dtype, shape, offsets };
  }

  #object(member: (key: string) => void): void {
    this.#expect("{");
    if (this.#accept("}")) return;
    do {
      const key = this.#string("a key");
      this.#expect(":");
      member(key);
    } while (this.#accept(","));
    this.#expect("}");
  }

  #numbers(): number[] {
    const numbers: number[] = [];
    this.#expect("[");
    if (this.#accept("]")) return numbers;
    do {
      numbers.push(this.#number());
    } while (this.#accept(","));
    this.#expect("]");
    return numbers;
  }

  #number(): number {
    this.#skipBlank();
    const start = this.#at;
    let value = 0;
    let digit = this.#text.charCodeAt(start) - zero;
    while (digit >= 0 && digit <= 9 && value <= Number.MAX_SAFE_INTEGER) {
      value = value * 10 + digit;
      digit = this.#text.charCodeAt(++this.#at) - zero;
    }
    const length = this.#at - start;
    const isPlain = length > 0 && (length === 1 || this.#text[start] !== "0");
    if (!isPlain || value > Number.MAX_SAFE_INTEGER || ".eE".includes(this.#text[this.#at] ?? " ")) {
      this.#at = start;
      this.#refuse("a whole number from 0 to 2^53 - 1");
    }
    return value;
  }

  #string(what: string): string {
    this.#skipBlank();
    const start = this.#at;
    if (this.#text[start] !== '"') this.#refuse(what);
    let end = start;
    let escapes: number;
    do {
      end = this.#text.indexOf('"', end + 1);
      if (end < 0) this.#refuse(`${what} that ends`);
      escapes = 0;
      while (this.#text[end - 1 - escapes] === "\\") escapes++;
    } while (escapes % 2 === 1);
    this.#at = end + 1;
    try {
      const value = JSON.parse(this.#text.slice(start, end + 1)) as string;
      if (!/\p{Surrogate}/u.test(value)) return value;
    } catch {
      // told below like half a surrogate pair
    }
    this.#at = start;
    return this.#refuse(`${what} in well-formed JSON`);
  }

  #accept(sign: string): boolean {
    this.#skipBlank();
    if (this.#text[this.#at] !== sign) return false;
    this.#at++;
    return true;
  }

  #expect(sign: string): void {
    if (!this.#accept(sign)) this.#refuse(sign);
  }

  #skipBlank(): void {
    let code = this.#text.charCodeAt(this.#at);
    // space, tab, line feed, carriage return
    while (code === 32 || code === 9 || code === 10 || code === 13) code = this.#text.charCodeAt(++this.#at);
  }

  #refuse(expected: string): never {
    const rest = this.#text.slice(this.#at, this.#at + 24);
    const got = rest === "" ? "the end of the header" : quote(rest);
    throw new FormatError(
      `[safetensors] the header of ${this.#file} breaks off from the format at character ${this.#at}: expected ${expected}, got ${got}`,
    );
  }
}
