import { Random } from "../tensor/random.ts";
import { distribution, type SamplingOptions, sample } from "./sampler.ts";
import type { Session } from "./session.ts";
import type { Stepper } from "./stepper.ts";

/** A token that a session has written, and the logits it was drawn from. */
export interface Token {
  readonly id: number;
  readonly logits: Float32Array;
}

/**
 * Tokens one after another, each read by the session before it is handed out: `limit` of them at most are asked for, and
 * none after one of `ends`.
 */
export type TokenSource = (limit: number, ends: ReadonlySet<number>) => AsyncIterable<Token>;

/** What every source is made for. */
export interface SourceOptions {
  readonly session: Session;
  readonly sampling: SamplingOptions;
  readonly seed: number;
}

/** Ids that a repetition penalty looks at; nothing is gathered where there is none. */
export function seenBy(
  session: Session,
  sampling: SamplingOptions,
  further: readonly number[] = [],
): Iterable<number> {
  return (sampling.repetitionPenalty ?? 1) === 1 ? [] : [...session.ids, ...further];
}

/** Tokens drawn from what the session's model says. */
export function plainTokens(options: SourceOptions & { readonly stepper: Stepper }): TokenSource {
  const { session, sampling, seed, stepper } = options;
  return async function* () {
    const random = new Random(seed, "generate");
    for (;;) {
      const logits = session.logits!;
      const { id } = sample(distribution(logits, sampling, seenBy(session, sampling)), random);
      await stepper.step(session, id);
      yield { id, logits };
    }
  };
}
