import { ConfigError } from "../errors.ts";
import type { LanguageModel } from "./language-model.ts";
import { readInto } from "./prefill.ts";
import {
  type Choice,
  checkSampling,
  likeliestOf,
  logProbabilities,
  type SamplingOptions,
} from "./sampler.ts";
import type { Session } from "./session.ts";
import { speculativeTokens } from "./speculation.ts";
import { LoneStepper, type Stepper } from "./stepper.ts";
import { StopText } from "./stop-text.ts";
import { plainTokens, type Token, type TokenSource } from "./token-sources.ts";

/** Options of `session.generate`. The snake_case names of other libraries are understood too. */
export interface GenerateOptions extends SamplingOptions {
  /** Read before generating. */
  readonly prompt?: string | ArrayLike<number>;
  /** Tokens at most; without it generation ends by a stop, the signal, or leaving the loop. */
  readonly maxNewTokens?: number;
  /** Generation ends before a text that is one of these; of those that overlap, before the one that is complete first. */
  readonly stop?: string | readonly string[];
  /** Generation ends at one of these ids, which is read but not shown; the tokenizer's separator unless given. */
  readonly stopTokens?: readonly number[];
  /** Log-probabilities of the tokens written under the model itself, and of so many likeliest ones in their places. */
  readonly logProbabilities?: boolean | number;
  /** The same seed on the same session gives the same text. */
  readonly seed?: number;
  readonly signal?: AbortSignal;
  /** A small model of the same vocabulary that proposes tokens; what comes out has the same distribution, sooner. */
  readonly draft?: LanguageModel;
  /** Tokens that the draft proposes at a time; 4 unless given. */
  readonly draftTokens?: number;
  readonly max_new_tokens?: number;
  readonly top_k?: number;
  readonly top_p?: number;
  readonly min_p?: number;
  readonly repetition_penalty?: number;
}

/** One piece of generated text: whole characters, or empty where a token completes none. */
export interface GeneratedPiece {
  readonly text: string;
  /** Undefined for text that was held back until the end. */
  readonly id: number | undefined;
  /** Natural logarithm of the token's probability under the model; where it was asked for. */
  readonly logProbability?: number;
  /** The likeliest tokens in its place, likeliest first; where they were asked for. */
  readonly likeliest?: readonly Choice[];
}

/** Why a generation ended: it was long enough, a stop text came, or a stop token. */
export type FinishReason = "length" | "stop" | "token";

/** What a generation came to. */
export interface GenerationResult {
  readonly text: string;
  readonly ids: readonly number[];
  readonly finishReason: FinishReason;
  readonly logProbabilities?: readonly number[];
  readonly likeliest?: readonly (readonly Choice[])[];
  /** How many tokens a draft proposed, and how many of them stayed. */
  readonly draft?: { readonly proposed: number; readonly accepted: number };
}

/** A running generation: await it for the whole, or iterate over its pieces. Work is done as pieces are asked for. */
export class Generation implements PromiseLike<GenerationResult>, AsyncIterable<GeneratedPiece> {
  readonly #session: Session;
  readonly #options: GenerateOptions;
  readonly #source: TokenSource;
  readonly #stops: StopText;
  readonly #counts = { proposed: 0, accepted: 0 };
  #result: Promise<GenerationResult> | undefined;
  #isStarted = false;

  constructor(session: Session, options: GenerateOptions, stepper: Stepper = new LoneStepper()) {
    this.#session = session;
    this.#options = options;
    this.#stops = new StopText(options.stop);
    const sampling = samplingOf(options);
    checkSampling(sampling);
    checkCounts(options);
    const { seed = 0, draft, draftTokens = 4 } = options;
    this.#source =
      draft === undefined
        ? plainTokens({ session, sampling, seed, stepper })
        : speculativeTokens({ session, sampling, seed, draft, draftTokens, counts: this.#counts });
  }

  /** Makes the whole text. */
  // biome-ignore lint/suspicious/noThenProperty: awaiting a generation is its public form
  then<Fulfilled = GenerationResult, Rejected = never>(
    onFulfilled?: ((value: GenerationResult) => Fulfilled | PromiseLike<Fulfilled>) | null,
    onRejected?: ((reason: unknown) => Rejected | PromiseLike<Rejected>) | null,
  ): Promise<Fulfilled | Rejected> {
    this.#result ??= this.collect();
    return this.#result.then(onFulfilled, onRejected);
  }

  /**
   * Pieces as they are made; leaving the loop ends the work. Nothing is kept of pieces gone by.
   *
   * @throws ConfigError when it was consumed before or something else runs on its session.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<GeneratedPiece, FinishReason> {
    if (this.#isStarted)
      throw new ConfigError("[generate] a generation can be consumed once", "Call generate again.");
    this.#isStarted = true;
    const isSpeculative = this.#options.draft !== undefined;
    const release = this.#session.claim(
      isSpeculative ? "speculative generation" : "generation",
      isSpeculative,
    );
    try {
      return yield* this.pieces();
    } finally {
      release();
    }
  }

  private async collect(): Promise<GenerationResult> {
    const iterator = this[Symbol.asyncIterator]();
    const ids: number[] = [];
    const texts: string[] = [];
    const chosen: number[] = [];
    const likeliest: (readonly Choice[])[] = [];
    for (;;) {
      const next = await iterator.next();
      if (next.done) {
        const { logProbabilities: wanted = false, draft } = this.#options;
        return {
          ...{ text: texts.join(""), ids, finishReason: next.value },
          ...(wanted === false ? {} : { logProbabilities: chosen }),
          ...(typeof wanted === "number" ? { likeliest } : {}),
          ...(draft === undefined ? {} : { draft: this.#counts }),
        };
      }
      texts.push(next.value.text);
      if (next.value.id !== undefined) ids.push(next.value.id);
      if (next.value.logProbability !== undefined) chosen.push(next.value.logProbability);
      if (next.value.likeliest !== undefined) likeliest.push(next.value.likeliest);
    }
  }

  private async *pieces(): AsyncGenerator<GeneratedPiece, FinishReason> {
    const session = this.#session;
    const { signal, prompt, stopTokens } = this.#options;
    signal?.throwIfAborted();
    if (prompt !== undefined) await readInto(session, prompt, signal === undefined ? {} : { signal });
    if (session.logits === undefined) beginEmpty(session);
    const { separator } = session.model.tokenizer;
    const ends = new Set(stopTokens ?? (separator === undefined ? [] : [separator]));
    const limit = this.#options.maxNewTokens ?? this.#options.max_new_tokens ?? Number.POSITIVE_INFINITY;
    const decoder = session.model.tokenizer.stream();
    const stops = this.#stops;
    let reason: FinishReason = "length";
    let count = 0;
    if (limit > 0) {
      for await (const token of this.#source(limit, ends)) {
        if (ends.has(token.id)) {
          reason = "token";
          break;
        }
        count++;
        yield { text: stops.push(decoder.push(token.id)), id: token.id, ...this.measured(token) };
        if (stops.isMet) {
          reason = "stop";
          break;
        }
        if (count === limit) break;
        signal?.throwIfAborted();
      }
    }
    const rest = stops.isMet ? "" : stops.push(decoder.end()) + stops.end();
    if (rest !== "") yield { text: rest, id: undefined };
    return reason;
  }

  private measured({ id, logits }: Token): Pick<GeneratedPiece, "logProbability" | "likeliest"> {
    const { logProbabilities: wanted = false } = this.#options;
    if (wanted === false) return {};
    const all = logProbabilities(logits);
    const own = { logProbability: all[id]! };
    return wanted === true ? own : { ...own, likeliest: likeliestOf(all, wanted) };
  }
}

/** An empty beginning is that of a document. */
function beginEmpty(session: Session): void {
  const { separator } = session.model.tokenizer;
  if (separator === undefined) {
    throw new ConfigError(
      "[generate] there is nothing to continue: expected a prompt, got none and an empty session",
    );
  }
  const ids = Int32Array.of(separator);
  session.take(ids, session.model.advance([session.slot], ids)[0]!);
}

function checkCounts(options: GenerateOptions): void {
  const { draftTokens, logProbabilities: wanted } = options;
  const limit = options.maxNewTokens ?? options.max_new_tokens;
  const check = (name: string, value: number | undefined, least: number): void => {
    if (value === undefined || (Number.isInteger(value) && value >= least)) return;
    throw new ConfigError(`[generate] ${name} is a whole number >= ${least}, got ${value}`);
  };
  check("maxNewTokens", limit, 0);
  check("draftTokens", draftTokens, 1);
  check("logProbabilities", typeof wanted === "number" ? wanted : undefined, 0);
}

function samplingOf(options: GenerateOptions): SamplingOptions {
  const pick = <Value>(camel: Value | undefined, snake: Value | undefined): Value | undefined =>
    camel ?? snake;
  const { temperature } = options;
  const topK = pick(options.topK, options.top_k);
  const topP = pick(options.topP, options.top_p);
  const minP = pick(options.minP, options.min_p);
  const repetitionPenalty = pick(options.repetitionPenalty, options.repetition_penalty);
  return {
    ...(temperature === undefined ? {} : { temperature }),
    ...(topK === undefined ? {} : { topK }),
    ...(topP === undefined ? {} : { topP }),
    ...(minP === undefined ? {} : { minP }),
    ...(repetitionPenalty === undefined ? {} : { repetitionPenalty }),
  };
}
