import type { Device } from "../device/device.ts";
import { ConfigError } from "../errors.ts";
import type { Decoder } from "../models/decoder.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { Runner } from "./runner.ts";
import { Session, type SessionOptions } from "./session.ts";

/** A decoder with its tokenizer: what sessions are opened on. */
export class LanguageModel extends Runner {
  readonly tokenizer: Tokenizer;

  constructor(decoder: Decoder, tokenizer: Tokenizer, device: Device) {
    const { vocabularySize } = decoder.config;
    if (tokenizer.vocabularySize > vocabularySize) {
      throw new ConfigError(
        `[LanguageModel] the tokenizer has more ids than the model: expected at most ${vocabularySize}, got ${tokenizer.vocabularySize}`,
      );
    }
    super(decoder, device);
    this.tokenizer = tokenizer;
  }

  /**
   * A conversation of its own: a state of fixed size, where the model's layers allow it.
   *
   * @example
   * const session = model.session();
   * for await (const { text } of session.generate({ prompt: "Call me", maxNewTokens: 20 })) console.log(text);
   */
  session(options: SessionOptions = {}): Session {
    return new Session(this, this.takeSlot(), options);
  }

  /**
   * One token for each of several sessions at once: the logits of the next, a row for each.
   *
   * @throws ConfigError for a session of another model or named twice, and where there is not one id for each.
   */
  step(sessions: readonly Session[], ids: ArrayLike<number>): Float32Array[] {
    if (sessions.some(({ model }) => model !== this))
      throw new ConfigError("[step] sessions are those of this model: expected its own, got another's");
    const releases: (() => void)[] = [];
    try {
      for (const session of sessions) releases.push(session.claim("step"));
      const slots = sessions.map(({ slot }) => slot);
      const rows = this.advance(slots, Int32Array.from(ids));
      for (const [i, session] of sessions.entries()) session.take([ids[i]!], rows[i]!);
      return rows;
    } finally {
      for (const release of releases) release();
    }
  }
}
