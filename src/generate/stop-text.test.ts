import assert from "node:assert/strict";
import { test } from "node:test";
import { Random } from "../tensor/random.ts";
import { StopText } from "./stop-text.ts";

function shown(stops: readonly string[], pieces: readonly string[]): string {
  const stop = new StopText(stops);
  const text = pieces.map((piece) => stop.push(piece)).join("");
  return stop.isMet ? `${text}|` : text + stop.end();
}

/** The rule, said otherwise: after every character, whether a stop ends there. */
function wanted(stops: readonly string[], text: string): string {
  for (let end = 1; end <= text.length; end++) {
    const lengths = stops.filter((stop) => text.slice(0, end).endsWith(stop)).map((stop) => stop.length);
    if (lengths.length > 0) return `${text.slice(0, end - Math.max(...lengths))}|`;
  }
  return text;
}

test("stop texts that overlap end a text at the same place however it is cut", () => {
  const random = new Random(11);
  const below = (n: number): number => Math.floor(random.next() * n);
  const word = (most: number): string =>
    Array.from({ length: 1 + below(most) }, () => "ab"[below(2)]).join("");
  for (let round = 0; round < 2000; round++) {
    const stops = Array.from({ length: 1 + below(3) }, () => word(5));
    const text = word(16);
    const pieces: string[] = [];
    for (let at = 0; at < text.length; ) {
      const length = 1 + below(4);
      pieces.push(text.slice(at, at + length));
      at += length;
    }
    assert.equal(shown(stops, pieces), wanted(stops, text), JSON.stringify({ stops, pieces }));
  }
});

test("nothing is shown that may still be part of a stop", () => {
  const stop = new StopText("<end>");
  assert.deepEqual(
    ["a<", "en", "x<e", "nd", ">b"].map((piece) => stop.push(piece)),
    ["a", "", "<enx", "", ""],
  );
  assert.equal(stop.isMet, true);
  assert.equal(shown([""], ["a", "b"]), "ab", "an empty string ends nothing");
});
