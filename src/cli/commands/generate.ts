import type { Command } from "commander";
import { PublishedModel } from "../../checkpoint/published-model.ts";
import { ConfigError } from "../../errors.ts";
import type { GenerateOptions } from "../../generate/generation.ts";
import type { LanguageModel } from "../../generate/language-model.ts";
import { formatBytes } from "../../report/table.ts";
import { type DeviceOptions, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags, finiteNumber, positiveInteger } from "../flags.ts";
import { openModel } from "../open-model.ts";

interface Options extends DeviceOptions {
  readonly prompt: string;
  readonly maxNewTokens: number;
  readonly temperature: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly stop?: string[];
  readonly seed: number;
  readonly chat?: boolean;
  readonly ignoreEnd?: boolean;
  readonly logProbabilities?: boolean;
  readonly json?: boolean;
}

/** `linnet generate`: continues a prompt with a trained model, token by token. */
export function generate(program: Command): void {
  deviceFlags(
    program
      .command("generate")
      .description("Continue a text with the model of a run, or one as it was published.")
      .argument("<folder>", "run folder, or folder of a published model")
      .option("--prompt <text>", "text to continue", "")
      .option("--max-new-tokens <number>", "tokens at most", positiveInteger, 200)
      .option("--temperature <number>", "0 takes the most likely token", finiteNumber, 0.8)
      .option("--top-k <number>", "only the k most likely tokens", positiveInteger)
      .option("--top-p <number>", "only the tokens that make up this probability", finiteNumber)
      .option("--min-p <number>", "only tokens at least this share as likely as the best", finiteNumber)
      .option("--repetition-penalty <number>", "makes tokens seen before less likely", finiteNumber)
      .option("--stop <text...>", "end before one of these")
      .option("--ignore-end", "write on where a document ends")
      .option("--seed <number>", "seed of the choices", Number, 0)
      .option("--chat", "the prompt is what a user says; the model's chat template says how it is read")
      .option("--log-probabilities", "with --json: those of the tokens written")
      .option("--json", "print JSON when done")
      .addHelpText(
        "after",
        '\nExample:\n  linnet generate runs/moby-dick --prompt "Call me" --max-new-tokens 500',
      ),
  ).action((path: string, options: Options) => withInterrupt((signal) => run(path, options, signal)));
}

async function run(path: string, options: Options, signal: AbortSignal): Promise<void> {
  const device = await openDevice(options);
  try {
    const model = await openModel(path, device, signal);
    const session = model.session();
    const began = performance.now();
    const generation = session.generate(optionsOf(model, options, signal));
    if (options.json) {
      const result = await generation;
      const seconds = (performance.now() - began) / 1000;
      const rate = { tokensPerSecond: result.ids.length / seconds, stateBytes: session.bytes };
      console.log(JSON.stringify({ ...result, ...rate }));
      return;
    }
    if (!options.chat) await written(options.prompt);
    let tokens = 0;
    for await (const { text, id } of generation) {
      await written(text);
      if (id !== undefined) tokens++;
    }
    const seconds = (performance.now() - began) / 1000;
    await written("\n");
    const rate = `${tokens} tokens, ${Math.round(tokens / seconds)} a second`;
    process.stderr.write(`${rate}, state ${formatBytes(session.bytes.now)}\n`);
  } finally {
    device.close();
  }
}

/** What a user says, as the template of the model has it. */
function chatPrompt(model: LanguageModel, prompt: string): string {
  const chat = model instanceof PublishedModel ? model.chat : undefined;
  if (chat !== undefined) return chat([{ role: "user", content: prompt }]);
  throw new ConfigError(
    "[generate] the model has no chat template: expected chat_template in its folder, got none",
    "Leave --chat out to continue the prompt as it is.",
  );
}

function optionsOf(model: LanguageModel, options: Options, signal: AbortSignal): GenerateOptions {
  const { maxNewTokens, temperature, topK, topP, minP, repetitionPenalty, stop, seed } = options;
  const prompt = options.chat ? chatPrompt(model, options.prompt) : options.prompt;
  const ends = model instanceof PublishedModel ? model.endIds : [];
  const given = {
    ...{ temperature, topK, topP, minP, repetitionPenalty, stop, maxNewTokens, seed, signal },
    prompt: prompt === "" ? undefined : prompt,
    stopTokens: options.ignoreEnd ? [] : ends.length > 0 ? ends : undefined,
    logProbabilities: options.logProbabilities,
  };
  return Object.fromEntries(
    Object.entries(given).filter(([, value]) => value !== undefined),
  ) as GenerateOptions;
}

/** Writes no faster than whoever reads: a text that goes on for hours must not pile up here. */
async function written(text: string): Promise<void> {
  if (text === "" || process.stdout.write(text)) return;
  await new Promise((resolve) => process.stdout.once("drain", resolve));
}
