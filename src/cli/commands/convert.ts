import { access } from "node:fs/promises";
import type { Command } from "commander";
import { Option } from "commander";
import { save } from "../../checkpoint/save.ts";
import { ConfigError } from "../../errors.ts";
import { publishedFormats } from "../../models/presets/published/index.ts";
import { openLanguageModel } from "../../tasks/language-modelling/run.ts";
import { type DeviceOptions, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags } from "../flags.ts";
import { isRunFolder, openPublished } from "../open-model.ts";

interface ConvertOptions extends DeviceOptions {
  readonly dtype: "F32" | "BF16" | "F16";
  readonly format?: string;
}

/** `linnet convert`: a model in a published format, or in another dtype. */
export function convert(program: Command): void {
  const types = [...new Set(publishedFormats.map(({ modelTypes }) => modelTypes[0]!))];
  deviceFlags(
    program
      .command("convert")
      .description("Write a run or a published model as a folder that other libraries open.")
      .argument("<folder>", "run folder, or folder of a published model")
      .argument("<out>", "folder to write; it must not be there yet")
      .addOption(
        new Option("--format <model_type>", "format (default: its own, or the first that fits)").choices(
          types,
        ),
      )
      .addOption(
        new Option("--dtype <dtype>", "dtype of the weights").choices(["F32", "BF16", "F16"]).default("F32"),
      )
      .addHelpText("after", "\nExample:\n  linnet convert runs/book my-gla --format gla --dtype BF16"),
  ).action((path: string, out: string, options: ConvertOptions) =>
    withInterrupt((signal) => run(path, out, options, signal)),
  );
}

async function run(path: string, out: string, options: ConvertOptions, signal: AbortSignal): Promise<void> {
  const isTaken = await access(out).then(
    () => true,
    () => false,
  );
  if (isTaken) throw new ConfigError(`[convert] ${out} is there already: expected the name of a new folder`);
  const device = await openDevice(options);
  const { dtype, format } = options;
  const how = { dtype, signal, ...(format === undefined ? {} : { modelType: format }) };
  try {
    if (await isRunFolder(path)) {
      const { decoder, tokenizer } = await openLanguageModel(path, device);
      const data = tokenizer.toJSON();
      const texts = new Map([["linnet_tokenizer.json", `${JSON.stringify(data)}\n`]]);
      if (data.kind === "hugging-face") {
        texts.clear();
        texts.set("tokenizer.json", JSON.stringify(data.tokenizer));
        texts.set("tokenizer_config.json", JSON.stringify(data.config));
      }
      const { separator } = tokenizer;
      const entries = separator === undefined ? {} : { bos_token_id: separator, eos_token_id: separator };
      await save(out, decoder, { ...how, texts, entries });
    } else {
      const model = await openPublished(path, device, signal);
      await model.save(out, how);
    }
    console.log(`wrote ${out}`);
  } finally {
    device.close();
  }
}
