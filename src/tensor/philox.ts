import { NumericsError } from "../errors.ts";

/**
 * Which of the 2^64 sequences of a seed: a whole number, or any text, whose sequence no number has. A parameter that
 * draws from the stream of its own name gets the same values wherever it stands in a model.
 */
export type Stream = number | string;

/** The 32-bit words that a seed and a stream contribute to every block: two of key, two of counter. */
export interface PhiloxKey {
  readonly key0: number;
  readonly key1: number;
  readonly stream0: number;
  readonly stream1: number;
}

const word = 2 ** 32;

function checkCount(who: string, name: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new NumericsError(
      `[${who}] ${name} is no count: expected a whole number from 0 to 2^53 - 1, got ${value}`,
    );
  }
}

/** FNV-1a of 64 bits over the UTF-16 units of a text. */
function hash(text: string): bigint {
  let state = 0xcbf29ce484222325n;
  for (let i = 0; i < text.length; i++) {
    state = BigInt.asUintN(64, (state ^ BigInt(text.charCodeAt(i))) * 0x100000001b3n);
  }
  return state;
}

/** Readies a seed, a whole number under 2^53, and a stream for drawing; NumericsError where they are none. */
export function philoxKey(seed: number, stream: Stream = 0): PhiloxKey {
  checkCount("philoxKey", "seed", seed);
  const key = { key0: seed >>> 0, key1: Math.floor(seed / word) };
  if (typeof stream === "string") {
    const digest = hash(stream);
    // numbers stay under 2^53, so the top bit keeps texts apart from them
    return {
      ...key,
      stream0: Number(digest & 0xffffffffn),
      stream1: (Number(digest >> 32n) | 0x80000000) >>> 0,
    };
  }
  checkCount("philoxKey", "stream", stream);
  return { ...key, stream0: stream >>> 0, stream1: Math.floor(stream / word) };
}

/** The upper word of the unsigned 32 x 32 bit product, from products of 16 x 16 bits. */
function upper(a: number, high: number, low: number): number {
  const aHigh = a >>> 16;
  const aLow = a & 0xffff;
  const middle = Math.imul(aHigh, low) + (Math.imul(aLow, low) >>> 16);
  const other = Math.imul(aLow, high) + (middle & 0xffff);
  return (Math.imul(aHigh, high) + (middle >>> 16) + (other >>> 16)) | 0;
}

/**
 * Philox4x32-10 of J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11): replaces the four words of
 * a counter, at `offset`, by random ones that depend on nothing but them and the two words of the key.
 */
export function philox(words: Uint32Array, key0: number, key1: number, offset = 0): void {
  let c0 = words[offset]! | 0;
  let c1 = words[offset + 1]! | 0;
  let c2 = words[offset + 2]! | 0;
  let c3 = words[offset + 3]! | 0;
  let k0 = key0 | 0;
  let k1 = key1 | 0;
  for (let round = 0; round < 10; round++) {
    const upper0 = upper(c0, 0xd251, 0x1f53);
    const upper1 = upper(c2, 0xcd9e, 0x8d57);
    const lower0 = Math.imul(c0, 0xd2511f53);
    const lower1 = Math.imul(c2, 0xcd9e8d57);
    c0 = upper1 ^ c1 ^ k0;
    c1 = lower1;
    c2 = upper0 ^ c3 ^ k1;
    c3 = lower0;
    k0 = (k0 + 0x9e3779b9) | 0;
    k1 = (k1 + 0xbb67ae85) | 0;
  }
  words[offset] = c0;
  words[offset + 1] = c1;
  words[offset + 2] = c2;
  words[offset + 3] = c3;
}

/**
 * Fills with random words: those from block `block` on, four to a block. The counter of a block is its number (two
 * words, lower first) and the stream, so any part of a sequence is drawn without the rest, on any thread or device.
 */
export function randomBits(target: Uint32Array, key: PhiloxKey, block = 0): Uint32Array {
  checkCount("randomBits", "block", block);
  const whole = target.length - (target.length % 4);
  for (let offset = 0; offset < whole; offset += 4) fillBlock(target, key, block + offset / 4, offset);
  if (whole < target.length) {
    const last = new Uint32Array(4);
    fillBlock(last, key, block + whole / 4, 0);
    target.set(last.subarray(0, target.length - whole), whole);
  }
  return target;
}

function fillBlock(target: Uint32Array, key: PhiloxKey, block: number, offset: number): void {
  target[offset] = block;
  target[offset + 1] = block / word;
  target[offset + 2] = key.stream0;
  target[offset + 3] = key.stream1;
  philox(target, key.key0, key.key1, offset);
}
