import { readdir } from "node:fs/promises";
import { type Command, InvalidArgumentError } from "commander";
import { ConfigError } from "../../errors.ts";
import { openTextClassifier, type TextClassifier } from "../../tasks/classification/text-classifier.ts";
import { readDocuments } from "../../text/corpus.ts";
import { type DeviceOptions, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags } from "../flags.ts";
import { isRunFolder } from "../open-model.ts";

interface Options extends DeviceOptions {
  readonly text?: readonly string[];
  readonly json?: boolean;
}

interface Named {
  readonly name: string;
  readonly text: string;
}

/** Documents that are labelled together. */
const together = 64;

const examples = `
Examples:
  linnet experiment classification mails/ --out runs/mails
  linnet classify runs/mails/linear --text "You have won"
  linnet classify runs/mails/linear inbox/ --json`;

/** `linnet classify`: labels for new texts, by a classifier that was trained before. */
export function classify(program: Command): void {
  deviceFlags(
    program
      .command("classify")
      .description("Label texts with a model that linnet experiment classification has trained.")
      .argument("<run>", "folder of one contender: that of the experiment and its name")
      .argument("[texts...]", "files, folders or .jsonl with a text field")
      .option(
        "--text <text>",
        "a text itself; may be given several times",
        (text: string, all: readonly string[] = []) => {
          if (text.trim() === "") throw new InvalidArgumentError("a text is expected.");
          return [...all, text];
        },
      )
      .option("--json", "print a JSON line a text")
      .addHelpText("after", examples),
  ).action((run: string, paths: string[], options: Options) =>
    withInterrupt((signal) => label(run, paths, options, signal)),
  );
}

async function label(run: string, paths: string[], options: Options, signal: AbortSignal): Promise<void> {
  if (paths.length === 0 && options.text === undefined)
    throw new ConfigError("[classify] there is nothing to label: expected files, or --text TEXT");
  await checkRun(run);
  const device = await openDevice(options);
  try {
    const classifier = await openTextClassifier(run, device);
    let waiting: Named[] = [];
    for await (const named of textsOf(paths, options.text ?? [])) {
      waiting.push(named);
      if (waiting.length < together) continue;
      await tell(classifier, waiting, options, signal);
      waiting = [];
    }
    await tell(classifier, waiting, options, signal);
  } finally {
    device.close();
  }
}

/** The folder of an experiment holds one of every contender: says which. */
async function checkRun(run: string): Promise<void> {
  if (await isRunFolder(run)) return;
  const inner: string[] = [];
  for (const name of await readdir(run).catch(() => []))
    if (await isRunFolder(`${run}/${name}`)) inner.push(`${run}/${name}`);
  if (inner.length > 0)
    throw new ConfigError(`[classify] ${run} holds several models: expected one of ${inner.join(", ")}`);
}

/** The beginning of every document, which is all that a classifier reads. */
async function* textsOf(paths: readonly string[], given: readonly string[]): AsyncGenerator<Named> {
  for (const text of given) yield { name: text.length > 50 ? `${text.slice(0, 49)}…` : text, text };
  for (const path of paths) {
    let isRest = false;
    for await (const { name, text, ends } of readDocuments(path)) {
      if (!isRest && text !== "") yield { name, text };
      isRest = !ends;
    }
  }
}

async function tell(
  classifier: TextClassifier,
  texts: readonly Named[],
  { json }: Options,
  signal: AbortSignal,
): Promise<void> {
  const found = await classifier.label(
    texts.map(({ text }) => text),
    { signal },
  );
  const width = Math.max(...classifier.labels.map((name) => name.length));
  for (const [i, { label: best, probability, probabilities }] of found.entries()) {
    const { name } = texts[i]!;
    if (json) console.log(JSON.stringify({ name, label: best, probability, probabilities }));
    else console.log(`${best.padEnd(width)} ${`${(100 * probability).toFixed(1)} %`.padStart(7)}  ${name}`);
  }
}
