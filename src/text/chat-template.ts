import { FormatError } from "../errors.ts";
import { missing } from "./hugging-face.ts";

/** One turn of a conversation. */
export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

/** What a template is given beside the messages. */
export interface ChatOptions {
  /** Ends where the model's answer begins; true unless given. */
  readonly addGenerationPrompt?: boolean;
  /** Names that templates use, such as `bos_token`, `eos_token` and `tools`. */
  readonly names?: Readonly<Record<string, unknown>>;
}

/** The text of a conversation, as the model was trained to read it. */
export type ChatTemplate = (messages: readonly ChatMessage[], options?: ChatOptions) => string;

/**
 * A `chat_template` of Hugging Face, run by @huggingface/jinja.
 *
 * @throws FormatError for a template that is none, UnsupportedError where the library is not installed.
 */
export async function chatTemplate(
  text: string,
  names: Readonly<Record<string, unknown>> = {},
): Promise<ChatTemplate> {
  const { Template } = await import("@huggingface/jinja").catch(missing("@huggingface/jinja"));
  const refuse = (cause: unknown): never => {
    throw new FormatError(`[chat template] ${(cause as Error).message}`, undefined, { cause });
  };
  let template: InstanceType<typeof Template>;
  try {
    template = new Template(text);
  } catch (cause) {
    return refuse(cause);
  }
  return (messages, options = {}) => {
    try {
      return template.render({
        ...names,
        ...options.names,
        messages: messages.map((message) => ({ ...message })),
        add_generation_prompt: options.addGenerationPrompt ?? true,
      });
    } catch (cause) {
      return refuse(cause);
    }
  };
}
