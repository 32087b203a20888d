import { nextTurn } from "../device/turn.ts";
import { ConfigError } from "../errors.ts";
import type { Session } from "./session.ts";

/** Options of `prefill`. */
export interface PrefillOptions {
  readonly signal?: AbortSignal;
  /** Called with the tokens done and in all. */
  readonly onProgress?: (done: number, total: number) => void;
  /** Tokens worked at once; 512 unless given. */
  readonly chunk?: number;
}

/** The ids of a text or a list, checked against the vocabulary. */
export function idsOf(session: Session, input: string | ArrayLike<number>): Int32Array {
  if (typeof input === "string") return session.model.tokenizer.encode(input);
  const { vocabularySize } = session.model.decoder.config;
  for (let i = 0; i < input.length; i++) {
    if (Number.isInteger(input[i]!) && input[i]! >= 0 && input[i]! < vocabularySize) continue;
    throw new ConfigError(
      `[session] token ids are 0 to ${vocabularySize - 1}, got ${input[i]} at position ${i}`,
    );
  }
  return Int32Array.from(input);
}

/** Reads a text or ids, piece by piece; the caller has the session to itself. */
export async function readInto(
  session: Session,
  input: string | ArrayLike<number>,
  { chunk = 512, signal, onProgress }: PrefillOptions = {},
): Promise<void> {
  if (!Number.isInteger(chunk) || chunk < 1)
    throw new ConfigError(`[prefill] chunk is a whole number >= 1, got ${chunk}`);
  const ids = idsOf(session, input);
  signal?.throwIfAborted();
  for (let from = 0; from < ids.length; from += chunk) {
    if (from > 0) await nextTurn();
    signal?.throwIfAborted();
    const piece = ids.slice(from, from + chunk);
    session.take(piece, session.model.advance([session.slot], piece, piece.length)[0]!);
    onProgress?.(Math.min(from + chunk, ids.length), ids.length);
  }
}
