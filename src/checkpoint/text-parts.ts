import { FormatError } from "../errors.ts";
import type { ConfigJson } from "../models/presets/published/index.ts";
import { type ChatTemplate, chatTemplate } from "../text/chat-template.ts";
import { huggingFaceTokenizer } from "../text/hugging-face.ts";
import { numbers } from "../text/numbers.ts";
import type { Tokenizer, TokenizerData } from "../text/tokenizer.ts";
import { tokenizerFrom } from "../text/tokenizer-from.ts";
import { type CheckpointSource, readText } from "./checkpoint-source.ts";

/** What a folder holds beside the model, for its text. */
export interface TextParts {
  /** Ids written as numbers where the folder has no tokenizer. */
  readonly tokenizer: Tokenizer;
  readonly hasTokenizer: boolean;
  readonly chat: ChatTemplate | undefined;
  /** Ids that end a generation. */
  readonly endIds: readonly number[];
  /** Files that a save writes again as they are. */
  readonly texts: ReadonlyMap<string, string>;
}

const files = {
  tokenizer: "tokenizer.json",
  /** One of Linnet's own kinds, which `tokenizer.json` has no words for. */
  own: "linnet_tokenizer.json",
  config: "tokenizer_config.json",
  template: "chat_template.jinja",
  generation: "generation_config.json",
};

/** Reads tokenizer, chat template and the ids that end a text, where they are there. */
export async function readTextParts(
  source: CheckpointSource,
  json: ConfigJson,
  vocabularySize: number,
  signal?: AbortSignal,
): Promise<TextParts> {
  const texts = new Map<string, string>();
  for (const file of Object.values(files)) {
    const text = await readText(source, file, signal);
    if (text !== undefined) texts.set(file, text);
  }
  const parsed = (file: string): Record<string, unknown> => {
    const text = texts.get(file);
    try {
      return text === undefined ? {} : (JSON.parse(text) as Record<string, unknown>);
    } catch (cause) {
      throw new FormatError(`[load] ${source.name}/${file} is not JSON`, undefined, { cause });
    }
  };
  const config = parsed(files.config);
  const endIds = endsOf(parsed(files.generation)["eos_token_id"] ?? json["eos_token_id"]);
  const separator = endIds[0];
  const hasTokenizer = texts.has(files.tokenizer) || texts.has(files.own);
  const own = texts.has(files.own)
    ? tokenizerFrom(parsed(files.own) as TokenizerData)
    : numbers(vocabularySize);
  const tokenizer = texts.has(files.tokenizer)
    ? await huggingFaceTokenizer(parsed(files.tokenizer), config, { separator })
    : own;
  const template = texts.get(files.template) ?? templateOf(config["chat_template"]);
  const chat = template === undefined ? undefined : await chatTemplate(template, specialTokens(config));
  return { tokenizer, hasTokenizer, chat, endIds, texts };
}

function endsOf(value: unknown): readonly number[] {
  const ids = Array.isArray(value) ? value : [value];
  return ids.filter((id): id is number => Number.isInteger(id));
}

/** One template, or that of the name `default` among several. */
function templateOf(value: unknown): string | undefined {
  if (typeof value === "string") return value;
  if (!Array.isArray(value)) return undefined;
  const named = value as { name?: string; template?: string }[];
  return (named.find(({ name }) => name === "default") ?? named[0])?.template;
}

function specialTokens(config: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const entries = Object.entries(config).filter(([key]) => key.endsWith("_token"));
  return Object.fromEntries(
    entries.map(([key, value]) => [key, (value as { content?: string } | null)?.content ?? value]),
  );
}
