import type { Device } from "../device/device.ts";
import { ConfigError } from "../errors.ts";
import type { Decoder } from "../models/decoder.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { Runner } from "./runner.ts";
import { Session } from "./session.ts";

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
  session(): Session {
    return new Session(this, this.takeSlot());
  }
}
