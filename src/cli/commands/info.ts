import type { Command } from "commander";
import { buildDecoder, describe, findTensors } from "../../checkpoint/load.ts";
import { openShards } from "../../checkpoint/shards.ts";
import { FormatError } from "../../errors.ts";
import { type DecoderConfig, expandPattern } from "../../models/config.ts";
import { modelSize } from "../../models/size.ts";
import { formatBytes, formatCount } from "../../report/table.ts";
import { RunFolder } from "../../train/run-folder.ts";
import { type DeviceOptions, describeDevice, openDevice } from "../device.ts";
import { deviceFlags, positiveInteger } from "../flags.ts";
import { kernelsOf, type MixerKernels } from "../kernels-of.ts";
import { isRunFolder } from "../open-model.ts";

interface InfoOptions extends DeviceOptions {
  readonly context: number;
  readonly json?: boolean;
}

/** What is known of a folder before its weights are read. */
interface Facts {
  readonly architecture: string;
  readonly library: string;
  readonly config: DecoderConfig;
  /** Bytes of weights in the files, by dtype. */
  readonly fileBytes: Readonly<Record<string, number>>;
}

/** `linnet info`: what a model is and takes, without reading its weights. */
export function info(program: Command): void {
  deviceFlags(
    program
      .command("info")
      .description("Say what a model is, what it takes, and which kernels will run it.")
      .argument("<folder>", "folder of a published model, or run folder")
      .option("--context <tokens>", "context for the bytes of caches", positiveInteger, 8192)
      .option("--json", "print JSON")
      .addHelpText("after", "\nExample:\n  linnet info Qwen3.5-0.8B --context 131072"),
  ).action(run);
}

async function run(path: string, options: InfoOptions): Promise<void> {
  const { architecture, library, config, fileBytes } = (await isRunFolder(path))
    ? await runFacts(path)
    : await publishedFacts(path);
  const device = await openDevice(options);
  try {
    const { parameters, weightBytes, stateBytes, cacheBytesPerToken } = modelSize(config);
    const kernels = kernelsOf(config, device);
    const sizes = { parameters, weightBytes, stateBytes, cacheBytesPerToken };
    const cacheBytes = cacheBytesPerToken * options.context;
    const mixers = mixersOf(config);
    if (options.json) {
      const { layers, width, vocabularySize } = config;
      const facts = { folder: path, architecture, library, layers, width, vocabularySize, mixers, fileBytes };
      const more = { context: options.context, cacheBytes, device: device.info(), kernels };
      console.log(JSON.stringify({ ...facts, ...sizes, ...more }, null, 2));
      return;
    }
    const files = Object.entries(fileBytes).map(([dtype, bytes]) => `${formatBytes(bytes)} ${dtype}`);
    const lines: [string, string][] = [
      ["architecture", `${architecture} (${library})`],
      [
        "layers",
        `${config.layers} of width ${config.width}: ${mixers.map(([id, n]) => `${n} ${id}`).join(", ")}`,
      ],
      ["parameters", formatCount(parameters)],
      ["weights", `${formatBytes(weightBytes)} in float32, ${files.join(" + ")} in the files`],
      ["state", `${formatBytes(stateBytes)} a sequence, whatever its length`],
      ["cache", cacheBytes === 0 ? "none" : `${formatBytes(cacheBytes)} at ${options.context} tokens`],
      ["device", describeDevice(device)],
    ];
    for (const [name, value] of lines) console.log(`${name.padEnd(14)}${value}`);
    for (const one of kernels) printKernels(one);
  } finally {
    device.close();
  }
}

function printKernels({ mechanism, layers, prefill, step }: MixerKernels): void {
  console.log(`\n${mechanism} (${layers} layer${layers === 1 ? "" : "s"})`);
  console.log(`  many tokens  ${prefill.join(", ")}`);
  console.log(`  one token    ${step.join(", ")}`);
}

function mixersOf(config: DecoderConfig): [id: string, layers: number][] {
  const counts = new Map<string, number>();
  for (const { mechanism } of expandPattern(config, { who: "info", causal: true }))
    counts.set(mechanism.id, (counts.get(mechanism.id) ?? 0) + 1);
  return [...counts];
}

async function publishedFacts(path: string): Promise<Facts> {
  const { source, json, format } = await describe(path);
  const shards = await openShards(source);
  try {
    const decoder = buildDecoder(format, json, source, shards.tensors.size);
    const found = findTensors(decoder, format, json, shards.tensors, source);
    const fileBytes: Record<string, number> = {};
    for (const { placed } of found)
      fileBytes[placed.dtype] = (fileBytes[placed.dtype] ?? 0) + placed.end - placed.begin;
    const { library } = format;
    return { architecture: String(json["model_type"]), library, config: decoder.config, fileBytes };
  } finally {
    await shards.close();
  }
}

async function runFacts(path: string): Promise<Facts> {
  const { config } = await RunFolder.open(path);
  if (config.task !== "language-modelling") {
    throw new FormatError(
      `[info] ${path} holds a model that writes no text: expected a run of language-modelling, got ${config.task}`,
      "Its config.json says what it is.",
    );
  }
  const model = config.model as DecoderConfig;
  return {
    architecture: config.task,
    library: "a run of linnet",
    config: model,
    fileBytes: { F32: modelSize(model).weightBytes },
  };
}
