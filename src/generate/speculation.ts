import { Turns } from "../device/turn.ts";
import { ConfigError } from "../errors.ts";
import { Random } from "../tensor/random.ts";
import type { LanguageModel } from "./language-model.ts";
import { type Distribution, distribution, sample } from "./sampler.ts";
import type { Session } from "./session.ts";
import { type SourceOptions, seenBy, type Token, type TokenSource } from "./token-sources.ts";

/** What a speculative source is made for. */
export interface SpeculationOptions extends SourceOptions {
  readonly draft: LanguageModel;
  readonly draftTokens: number;
  readonly counts: { proposed: number; accepted: number };
}

/**
 * Tokens that a small model proposes and the session's model accepts or replaces (Leviathan et al., arXiv 2211.17192v2,
 * algorithm 1): a proposal x stays with probability min(1, p(x)/q(x)), in the place of one that does not comes a draw from
 * the positive part of p − q, so that what comes out is distributed as p.
 *
 * @throws ConfigError when the two models have different vocabularies.
 */
export function speculativeTokens(options: SpeculationOptions): TokenSource {
  const { session, draft } = options;
  const [own, its] = [session.model.decoder.config.vocabularySize, draft.decoder.config.vocabularySize];
  if (own !== its) {
    throw new ConfigError(
      `[generate] the draft has another vocabulary: expected ${own} ids as the model has, got ${its}`,
    );
  }
  return async function* (limit, ends) {
    const rounds = new Speculation(options, ends);
    const turns = new Turns();
    try {
      rounds.begin();
      for (let count = 0; ; ) {
        for (const token of rounds.next(limit - count)) {
          rounds.handOut(token);
          count++;
          yield token;
        }
        await turns.pass();
      }
    } finally {
      rounds.end();
    }
  };
}

interface Proposal {
  readonly id: number;
  readonly q: Distribution;
}

/** The rounds of one speculative generation. */
class Speculation {
  readonly #options: SpeculationOptions;
  readonly #ends: ReadonlySet<number>;
  readonly #random: Random;
  readonly #draft: Session;
  /** Where the session's state was when the round began. */
  readonly #spare: number;
  #round: { readonly tokens: readonly Token[]; readonly after: Float32Array | undefined; handedOut: number } =
    {
      ...{ tokens: [], after: undefined, handedOut: 0 },
    };

  constructor(options: SpeculationOptions, ends: ReadonlySet<number>) {
    this.#options = options;
    this.#ends = ends;
    this.#random = new Random(options.seed, "generate");
    this.#draft = options.draft.session();
    this.#spare = options.session.model.takeSlot();
  }

  /** The draft reads what the session remembers. */
  begin(): void {
    const { session, draft } = this.#options;
    const { ids } = session;
    for (let from = 0; from < ids.length; from += 512) {
      const piece = ids.slice(from, from + 512);
      this.#draft.take(piece, draft.advance([this.#draft.slot], piece, piece.length)[0]!);
    }
  }

  /** The tokens of one round, all read by the session's state, none noted in the session yet. */
  next(left: number): readonly Token[] {
    const { session, draftTokens, counts } = this.#options;
    const { model, slot } = session;
    model.states.copy(slot, this.#spare);
    const start = this.#draft.checkpoint();
    const proposals = this.propose(Math.min(draftTokens, left - 1));
    const ids = Int32Array.from(proposals, ({ id }) => id);
    const rows = [session.logits!, ...(ids.length > 0 ? model.advanceEach([slot], ids, ids.length) : [])];
    const { tokens, stayed } = this.judge(proposals, rows);
    counts.proposed += proposals.length;
    counts.accepted += stayed;
    const isWhole = stayed === proposals.length;
    const after = this.settle(tokens, isWhole ? stayed : 0, start) ?? rows[stayed]!;
    this.#round = { tokens, after, handedOut: 0 };
    return tokens;
  }

  /** Notes a token of the round in the session. */
  handOut(token: Token): void {
    const { tokens, after } = this.#round;
    const next = tokens[++this.#round.handedOut];
    this.#options.session.take([token.id], next?.logits ?? after!);
  }

  /** Gives everything back; a round that was left in the middle is read again up to there. */
  end(): void {
    const { session } = this.#options;
    const { tokens, handedOut } = this.#round;
    if (handedOut < tokens.length && !session.isDisposed) {
      session.model.states.copy(this.#spare, session.slot);
      const ids = Int32Array.from(tokens.slice(0, handedOut), ({ id }) => id);
      if (handedOut > 0) session.model.advance([session.slot], ids, handedOut);
    }
    session.model.giveSlot(this.#spare);
    this.#draft.dispose();
  }

  private propose(count: number): Proposal[] {
    const { session, sampling } = this.#options;
    const proposals: Proposal[] = [];
    while (proposals.length < count) {
      const seen = seenBy(
        session,
        sampling,
        proposals.map(({ id }) => id),
      );
      const q = distribution(this.#draft.logits ?? session.logits!, sampling, seen);
      const { id } = sample(q, this.#random);
      proposals.push({ id, q });
      this.#draft.step(id);
      if (this.#ends.has(id)) break;
    }
    return proposals;
  }

  /** Proposals that stay, and the token after them: a bonus, or what comes in the place of the first that does not. */
  private judge(
    proposals: readonly Proposal[],
    rows: readonly Float32Array[],
  ): { readonly tokens: Token[]; readonly stayed: number } {
    const { session, sampling } = this.#options;
    const tokens: Token[] = [];
    const p = (): Distribution =>
      distribution(
        rows[tokens.length]!,
        sampling,
        seenBy(
          session,
          sampling,
          tokens.map(({ id }) => id),
        ),
      );
    for (const { id, q } of proposals) {
      const target = p();
      const logits = rows[tokens.length]!;
      if (this.#random.next() * probabilityOf(q, id) >= probabilityOf(target, id)) {
        const stayed = tokens.length;
        tokens.push({ id: sample(excess(target, q), this.#random).id, logits });
        return { tokens, stayed };
      }
      tokens.push({ id, logits });
      if (this.#ends.has(id)) return { tokens, stayed: tokens.length };
    }
    const stayed = tokens.length;
    tokens.push({ id: sample(p(), this.#random).id, logits: rows[stayed]! });
    return { tokens, stayed };
  }

  /** Brings both states to the end of the round, `read` of whose tokens they have; the logits after what they lacked. */
  private settle(tokens: readonly Token[], read: number, start: number): Float32Array | undefined {
    const { session, draft } = this.#options;
    const { model, slot } = session;
    if (read === 0) {
      model.states.copy(this.#spare, slot);
      this.#draft.rollback(start);
    }
    this.#draft.forget(start);
    const ids = Int32Array.from(tokens.slice(read), ({ id }) => id);
    if (ids.length === 0) return undefined;
    this.#draft.take(ids, draft.advance([this.#draft.slot], ids, ids.length)[0]!);
    return model.advance([slot], ids, ids.length)[0]!;
  }
}

function probabilityOf({ ids, probabilities }: Distribution, id: number): number {
  const at = ids.indexOf(id);
  return at < 0 ? 0 : probabilities[at]!;
}

/** The positive part of p − q, normalised. */
function excess(p: Distribution, q: Distribution): Distribution {
  const taken = new Map<number, number>();
  for (const [i, id] of q.ids.entries()) taken.set(id, q.probabilities[i]!);
  const weights = p.probabilities.map((probability, i) =>
    Math.max(0, probability - (taken.get(p.ids[i]!) ?? 0)),
  );
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return sum === 0 ? p : { ids: p.ids, probabilities: weights.map((weight) => weight / sum) };
}
