import type { Device } from "../device/device.ts";
import { LanguageModel } from "../generate/language-model.ts";
import type { Decoder } from "../models/decoder.ts";
import type { ConfigJson, PublishedFormat } from "../models/presets/published/index.ts";
import type { ChatTemplate } from "../text/chat-template.ts";
import { type SaveOptions, save } from "./save.ts";
import type { TextParts } from "./text-parts.ts";

/** What a published model is made of. */
export interface PublishedParts extends TextParts {
  readonly decoder: Decoder;
  readonly device: Device;
  readonly format: PublishedFormat;
  readonly json: ConfigJson;
  /** Names in the file where it spells them otherwise than they are written. */
  readonly spellings: ReadonlyMap<string, string>;
}

/** A model that was loaded in a published format: it trains and generates like any other, and saves in its format. */
export class PublishedModel extends LanguageModel {
  readonly format: PublishedFormat;
  /** Its `config.json`. */
  readonly json: ConfigJson;
  /** False where the folder had no tokenizer: ids are written as numbers then. */
  readonly hasTokenizer: boolean;
  /** The text of a conversation as the model reads it, where the folder has a template. */
  readonly chat: ChatTemplate | undefined;
  /** Ids that end a generation. */
  readonly endIds: readonly number[];
  readonly #parts: PublishedParts;

  constructor(parts: PublishedParts) {
    super(parts.decoder, parts.tokenizer, parts.device);
    this.format = parts.format;
    this.json = parts.json;
    this.hasTokenizer = parts.hasTokenizer;
    this.chat = parts.chat;
    this.endIds = parts.endIds;
    this.#parts = parts;
  }

  /** Writes a folder in the format that the model came in, with its tokenizer. Node only. */
  async save(folder: string, options: Omit<SaveOptions, "published"> = {}): Promise<void> {
    const { format, json, spellings, texts } = this.#parts;
    await save(folder, this.decoder, { ...options, published: { format, json, spellings, texts } });
  }
}
