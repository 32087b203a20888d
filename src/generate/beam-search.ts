import { Turns } from "../device/turn.ts";
import { ConfigError } from "../errors.ts";
import { likeliestOf, logProbabilities } from "./sampler.ts";
import type { Session } from "./session.ts";

/** Options of `beamSearch`. */
export interface BeamOptions {
  /** Beginnings followed at a time; 4 unless given. */
  readonly beams?: number;
  readonly maxNewTokens: number;
  /** Texts are compared by log-probability / length^penalty; 1 unless given, 0 compares plain log-probabilities. */
  readonly lengthPenalty?: number;
  /** A text ends with one of these ids, which counts in its probability and is not among its ids. */
  readonly stopTokens?: readonly number[];
  readonly signal?: AbortSignal;
}

/** A text that a search found. */
export interface BeamResult {
  readonly text: string;
  readonly ids: readonly number[];
  /** Natural logarithm of the probability of its ids, and of the stop token where it ended with one. */
  readonly logProbability: number;
  /** What texts are compared by. */
  readonly score: number;
  readonly finishReason: "length" | "token";
}

interface Beam {
  readonly slot: number;
  readonly ids: readonly number[];
  readonly logProbability: number;
  readonly logits: Float32Array;
}

interface Candidate {
  readonly parent: Beam;
  readonly id: number;
  readonly logProbability: number;
}

/**
 * The likeliest continuations of a session that a search along `beams` beginnings finds, best first.
 *
 * At every token the likeliest extensions of all beginnings stay. States fork with them: one copy for every beginning that
 * is followed twice. The session itself stays where it is. Cost: `maxNewTokens` steps of `beams` rows.
 *
 * @throws ConfigError for options out of range and a session that has read nothing.
 * @example
 * const session = model.session();
 * await session.prefill("Call me");
 * const [best] = await beamSearch(session, { beams: 3, maxNewTokens: 8 });
 */
export async function beamSearch(session: Session, options: BeamOptions): Promise<BeamResult[]> {
  check(session, options);
  const { maxNewTokens, signal } = options;
  signal?.throwIfAborted();
  const release = session.claim("beam search");
  const search = new Search(session, options);
  const turns = new Turns();
  try {
    for (let length = 1; length <= maxNewTokens && search.canImprove; length++) {
      signal?.throwIfAborted();
      search.extend(length);
      await turns.pass();
    }
    return search.results();
  } finally {
    search.end();
    release();
  }
}

/** The living beginnings of a search, and what has ended. */
class Search {
  readonly #session: Session;
  readonly #options: BeamOptions;
  readonly #beams: number;
  readonly #ends: ReadonlySet<number>;
  readonly #slots = new Set<number>();
  readonly #done: BeamResult[] = [];
  #living: readonly Beam[];

  constructor(session: Session, options: BeamOptions) {
    const { separator } = session.model.tokenizer;
    this.#session = session;
    this.#options = options;
    this.#beams = options.beams ?? 4;
    this.#ends = new Set(options.stopTokens ?? (separator === undefined ? [] : [separator]));
    const slot = this.copyOf(session.slot);
    this.#living = [{ slot, ids: [], logProbability: 0, logits: session.logits! }];
  }

  /** Whether any living beginning may still become better than what has ended. */
  get canImprove(): boolean {
    if (this.#done.length < this.#beams) return this.#living.length > 0;
    const worst = this.results().at(-1)!.score;
    return this.#living.some(
      ({ logProbability }) => this.scoreOf(logProbability, this.#options.maxNewTokens) > worst,
    );
  }

  /** One token more: likeliest extensions first, those that end are done, until there are enough that live on. */
  extend(length: number): void {
    const isLast = length === this.#options.maxNewTokens;
    const chosen: Candidate[] = [];
    for (const candidate of candidatesOf(this.#living, this.#beams + this.#ends.size)) {
      const { parent, id, logProbability } = candidate;
      if (this.#ends.has(id)) this.finish(parent.ids, logProbability, length, "token");
      else chosen.push(candidate);
      if (chosen.length === this.#beams) break;
    }
    if (!isLast) {
      this.#living = this.step(chosen);
      return;
    }
    this.#living = [];
    for (const { parent, id, logProbability } of chosen)
      this.finish([...parent.ids, id], logProbability, length, "length");
  }

  /** What has ended, best first. */
  results(): BeamResult[] {
    return [...this.#done].sort((a, b) => b.score - a.score).slice(0, this.#beams);
  }

  /** Gives the states back. */
  end(): void {
    for (const slot of this.#slots) this.#session.model.giveSlot(slot);
    this.#slots.clear();
  }

  private finish(
    ids: readonly number[],
    logProbability: number,
    length: number,
    finishReason: BeamResult["finishReason"],
  ): void {
    const text = this.#session.model.tokenizer.decode(ids);
    this.#done.push({ text, ids, logProbability, score: this.scoreOf(logProbability, length), finishReason });
  }

  private scoreOf(logProbability: number, length: number): number {
    return logProbability / length ** (this.#options.lengthPenalty ?? 1);
  }

  private copyOf(from: number): number {
    const { model } = this.#session;
    const slot = model.takeSlot();
    this.#slots.add(slot);
    model.states.copy(from, slot);
    return slot;
  }

  /** A parent's state goes to its first child, copies of it to the others; parents without children give theirs back. */
  private step(chosen: readonly Candidate[]): readonly Beam[] {
    const { model } = this.#session;
    const parents = new Set(chosen.map(({ parent }) => parent));
    for (const beam of this.#living) {
      if (parents.has(beam)) continue;
      model.giveSlot(beam.slot);
      this.#slots.delete(beam.slot);
    }
    const slots = chosen.map(({ parent }) =>
      parents.delete(parent) ? parent.slot : this.copyOf(parent.slot),
    );
    const ids = Int32Array.from(chosen, ({ id }) => id);
    const rows = model.advance(slots, ids);
    return chosen.map(({ parent, id, logProbability }, i) => ({
      ...{ slot: slots[i]!, ids: [...parent.ids, id], logProbability, logits: rows[i]! },
    }));
  }
}

/** Extensions of all beginnings, likeliest first: the `count` likeliest of each. */
function candidatesOf(living: readonly Beam[], count: number): Candidate[] {
  const all = living.flatMap((parent) =>
    likeliestOf(logProbabilities(parent.logits), count).map(({ id, logProbability }) => ({
      ...{ parent, id, logProbability: parent.logProbability + logProbability },
    })),
  );
  return all.sort((a, b) => b.logProbability - a.logProbability);
}

function check(session: Session, { beams = 4, maxNewTokens, lengthPenalty = 1 }: BeamOptions): void {
  for (const [name, value] of [
    ["beams", beams],
    ["maxNewTokens", maxNewTokens],
  ] as const) {
    if (Number.isInteger(value) && value >= 1) continue;
    throw new ConfigError(`[beamSearch] ${name} is a whole number >= 1, got ${value}`);
  }
  if (!(lengthPenalty >= 0 && lengthPenalty < Number.POSITIVE_INFINITY))
    throw new ConfigError(`[beamSearch] lengthPenalty is a number >= 0, got ${lengthPenalty}`);
  if (session.logits === undefined)
    throw new ConfigError(
      "[beamSearch] there is nothing to continue: expected a session that has read something",
    );
}
