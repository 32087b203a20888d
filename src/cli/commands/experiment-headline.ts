import { cpus, totalmem } from "node:os";
import type { Command } from "commander";
import type { WasmDevice } from "../../device/wasm/wasm.ts";
import { formatBytes, table } from "../../report/table.ts";
import {
  type HeadlineRow,
  headline,
  headlineMemory,
  headlineMethods,
  headlineModels,
} from "../../tasks/headline/index.ts";
import { type DeviceOptions, describeDevice, openDevice } from "../device.ts";
import { withInterrupt } from "../exit.ts";
import { deviceFlags, positiveInteger, wholeNumber } from "../flags.ts";

const mebibyte = 2 ** 20;

interface Options extends DeviceOptions {
  readonly models?: string;
  readonly methods?: string;
  readonly memory?: number;
  readonly wholeSeconds: number;
  readonly json?: boolean;
}

/** `linnet experiment headline`: images a second of linear attention and of what it replaces. */
export function experimentHeadline(experiment: Command): void {
  const models = headlineModels.map(({ name }) => name).join(", ");
  const methods = headlineMethods.map(({ id }) => id).join(", ");
  deviceFlags(
    experiment
      .command("headline")
      .description('Images a second at the two models of "Transformers are RNNs", every method at its best.')
      .option("--models <names>", `some of ${models}, parted by commas`)
      .option("--methods <names>", `some of ${methods}, parted by commas`)
      .option(
        "--memory <MiB>",
        `what the images of one method may take beside its weights (default: ${headlineMemory / mebibyte}, or half of the machine's memory)`,
        positiveInteger,
      )
      .option("--whole-seconds <count>", "longest run that makes whole images", wholeNumber, 20)
      .option("--json", "print JSON")
      .addHelpText(
        "after",
        "\nThe paper's models have random weights here: speed does not depend on them.\n\nExample:\n  linnet experiment headline --models grey",
      ),
  ).action((options: Options) => withInterrupt((signal) => run(options, signal)));
}

async function run(options: Options, signal: AbortSignal): Promise<void> {
  const say = options.json ? (text: string) => void process.stderr.write(`${text}\n`) : console.log;
  const memory = options.memory ? options.memory * mebibyte : Math.min(headlineMemory, totalmem() / 2);
  const rows: HeadlineRow[] = [];
  let machine: object = { cpu: cpus()[0]?.model.trim() ?? "unknown", node: process.versions.node, memory };
  const open = async (): Promise<WasmDevice> => {
    const device = await openDevice(options);
    const { tier, threads } = device.info();
    if (!("tier" in machine))
      say(`${describeDevice(device)}\nmemory limit of the images of one method: ${formatBytes(memory)}`);
    machine = { ...machine, tier, threads };
    return device;
  };
  for await (const row of headline(open, {
    ...{ memory, wholeSeconds: options.wholeSeconds, signal },
    ...(options.models === undefined ? {} : { models: options.models.split(",") }),
    ...(options.methods === undefined ? {} : { methods: options.methods.split(",") }),
    onLimits: (limits) => {
      machine = { ...machine, ...limits };
      const { operationsPerSecond, bytesPerSecond } = limits;
      say(
        `peak ${(operationsPerSecond / 1e9).toFixed(1)} GFLOP/s, memory read at ${(bytesPerSecond / 1e9).toFixed(1)} GB/s`,
      );
    },
    onStart: (model, method) => void process.stderr.write(`measuring ${model}, ${method}\n`),
  })) {
    rows.push(row);
  }
  if (options.json) console.log(JSON.stringify({ experiment: "headline", machine, rows }, null, 2));
  else console.log(`\n${tablesOf(rows)}\n\n${legend}\n${paperLine(rows)}`);
}

/** A table for each model: no wider than a terminal. */
function tablesOf(rows: readonly HeadlineRow[]): string {
  const models = [...new Set(rows.map(({ model }) => model))];
  return models
    .map((model) => {
      const own = rows.filter((row) => row.model === model);
      return `${model}, ${own[0]!.shape.join("×")}\n\n${tableOf(own)}`;
    })
    .join("\n\n");
}

function tableOf(rows: readonly HeadlineRow[]): string {
  return table(rows, [
    { title: "method", value: (row) => row.method },
    { title: "images/s", value: (row) => row.imagesPerSecond.toPrecision(3), align: "right" },
    { title: "linear ×", value: (row) => ratioText(row.ratio), align: "right" },
    { title: "floor", value: (row) => percentText(row.floorShare), align: "right" },
    { title: "parts", value: (row) => percentText(row.partsShare), align: "right" },
    { title: "memory", value: (row) => formatBytes(row.bytesPerImage), align: "right" },
    { title: "batch", value: (row) => row.batch },
    { title: "drawn", value: (row) => (row.measured === "whole" ? "whole" : "in part") },
    { title: "paper", value: (row) => row.paper ?? "", align: "right" },
  ]);
}

const legend = `linear ×  how many times as fast linear is
floor     share of the larger of operations over the peak and bytes over the
          bandwidth; parts: of what weights and mixers take one after another
memory    of one image beside the weights; batch: images made at once
drawn     in part: timed at three positions of an image and integrated
paper     images a second on the paper's GPU`;

function percentText(share: number): string {
  return `${Math.round(100 * share)} %`;
}

function ratioText(ratio: number | undefined): string {
  if (ratio === undefined) return "";
  return ratio >= 100 ? String(Math.round(ratio)) : ratio.toPrecision(3);
}

/** What the paper found, on its own machine, beside the row that does what it timed. */
function paperLine(rows: readonly HeadlineRow[]): string {
  return headlineModels
    .flatMap(({ name, paper }) => {
      const own = rows.find((row) => row.model === name && row.method === "softmax-matrix");
      if (own?.ratio === undefined) return [];
      return [
        `${name}: ${ratioText(own.ratio)} times the whole matrix here, ${paper["ratio"]} times in the paper`,
      ];
    })
    .join("\n");
}
