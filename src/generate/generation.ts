import { ConfigError } from "../errors.ts";
import { Random } from "../tensor/random.ts";
import { checkSampling, distribution, type SamplingOptions, sample } from "./sampler.ts";
import type { Session } from "./session.ts";
import { StopText } from "./stop-text.ts";

/** Options of `session.generate`. The snake_case names of other libraries are understood too. */
export interface GenerateOptions extends SamplingOptions {
  /** Read before generating. */
  readonly prompt?: string | ArrayLike<number>;
  /** Tokens at most; without it generation ends by a stop, the signal, or leaving the loop. */
  readonly maxNewTokens?: number;
  /** Generation ends before a text that is one of these. */
  readonly stop?: string | readonly string[];
  /** Generation ends at one of these ids, which is read but not shown; the tokenizer's separator unless given. */
  readonly stopTokens?: readonly number[];
  /** The same seed on the same session gives the same text. */
  readonly seed?: number;
  readonly signal?: AbortSignal;
  readonly max_new_tokens?: number;
  readonly top_k?: number;
  readonly top_p?: number;
  readonly min_p?: number;
  readonly repetition_penalty?: number;
}

/** One piece of generated text: whole characters, or empty where a token completes none. */
export interface GeneratedPiece {
  readonly text: string;
  readonly id: number;
  readonly logProbability: number;
}

/** What a generation came to. */
export interface GenerationResult {
  readonly text: string;
  readonly ids: readonly number[];
  readonly logProbabilities: readonly number[];
  readonly finishReason: "length" | "stop" | "token";
}

interface Turn {
  begin(): void;
  end(): void;
}

/** A running generation: await it for the whole, or iterate over its pieces. Work is done as pieces are asked for. */
export class Generation implements PromiseLike<GenerationResult>, AsyncIterable<GeneratedPiece> {
  readonly #session: Session;
  readonly #options: GenerateOptions;
  readonly #turn: Turn;
  #result: Promise<GenerationResult> | undefined;
  #isStarted = false;

  constructor(session: Session, options: GenerateOptions, turn: Turn) {
    this.#session = session;
    this.#options = options;
    this.#turn = turn;
    checkSampling(samplingOf(options));
    const limit = options.maxNewTokens ?? options.max_new_tokens;
    if (limit !== undefined && !(Number.isInteger(limit) && limit >= 0)) {
      throw new ConfigError(`[generate] maxNewTokens is a whole number >= 0, got ${limit}`);
    }
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

  /** Pieces as they are made; leaving the loop ends the work. */
  async *[Symbol.asyncIterator](): AsyncGenerator<GeneratedPiece, GenerationResult> {
    if (this.#isStarted)
      throw new ConfigError("[generate] a generation can be consumed once", "Call generate again.");
    this.#isStarted = true;
    this.#turn.begin();
    try {
      return yield* this.pieces();
    } finally {
      this.#turn.end();
    }
  }

  private async collect(): Promise<GenerationResult> {
    const iterator = this[Symbol.asyncIterator]();
    for (;;) {
      const next = await iterator.next();
      if (next.done) return next.value;
    }
  }

  private async *pieces(): AsyncGenerator<GeneratedPiece, GenerationResult> {
    const session = this.#session;
    const options = this.#options;
    const { signal, prompt, seed = 0 } = options;
    signal?.throwIfAborted();
    if (prompt !== undefined) await session.prefill(prompt, signal === undefined ? {} : { signal });
    if (session.logits === undefined) beginEmpty(session);
    const random = new Random(seed, "generate");
    const { separator } = session.model.tokenizer;
    const ends = new Set(options.stopTokens ?? (separator === undefined ? [] : [separator]));
    const limit = options.maxNewTokens ?? options.max_new_tokens ?? Number.POSITIVE_INFINITY;
    const decoder = session.model.tokenizer.stream();
    const stops = new StopText(options.stop);
    const sampling = samplingOf(options);
    const ids: number[] = [];
    const logProbabilities: number[] = [];
    let text = "";
    let finishReason: GenerationResult["finishReason"] = "length";
    while (ids.length < limit) {
      signal?.throwIfAborted();
      const { id, logProbability } = sample(distribution(session.logits!, sampling, session.ids), random);
      session.step(id);
      if (ends.has(id)) {
        finishReason = "token";
        break;
      }
      ids.push(id);
      logProbabilities.push(logProbability);
      const piece = stops.push(decoder.push(id));
      text += piece;
      yield { text: piece, id, logProbability };
      if (stops.isMet) {
        finishReason = "stop";
        break;
      }
      // A generation that runs for hours must not keep timers and signals out.
      if (ids.length % 16 === 0) await new Promise((resolve) => setTimeout(resolve, 0));
    }
    const rest = stops.isMet ? "" : stops.push(decoder.end()) + stops.end();
    if (rest !== "") {
      text += rest;
      yield { text: rest, id: ids.at(-1)!, logProbability: 0 };
    }
    return { text, ids, logProbabilities, finishReason };
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
  session.step(separator);
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
