import { nodeFiles } from "../checkpoint/node-files.ts";
import type { TensorEntry, TensorSource } from "../checkpoint/safetensors.ts";
import { openSafetensors, type SafetensorsFile, saveSafetensors } from "../checkpoint/safetensors-file.ts";
import { toFloat32 } from "../checkpoint/safetensors-values.ts";
import type { Device } from "../device/device.ts";
import { FormatError } from "../errors.ts";
import type { Module } from "../nn/module.ts";
import type { Optimizer } from "./optimizers/optimizer.ts";
import { entryOf, readWeights, weightEntries } from "./weights.ts";

/** What a run is, as plain data: enough to build its model and to go on training. */
export interface RunConfig {
  readonly format: "linnet-run";
  readonly version: 1;
  readonly task: string;
  readonly model: unknown;
  readonly [more: string]: unknown;
}

/** What a run must keep beside its weights to go on bit for bit. */
export interface Resumable {
  readonly module: Module;
  readonly optimizer: Optimizer;
  readonly step: number;
  /** Seconds of training so far. */
  readonly seconds: number;
  readonly carried?: Readonly<Record<string, import("../autograd/tensor.ts").Tensor>>;
  /** Running average of the weights by name. */
  readonly average?: ReadonlyMap<string, import("../autograd/tensor.ts").Tensor>;
}

const names = {
  config: "config.json",
  metrics: "metrics.jsonl",
  model: "model.safetensors",
  resume: "resume.safetensors",
};

/**
 * A run as a folder: `config.json`, `metrics.jsonl` (a line a step), `model.safetensors` (the weights) and
 * `resume.safetensors` (weights, optimizer, step in one file, so that no moment of a save leaves halves that do not
 * belong together). Files are written to a temporary name and renamed; their contents carry a checksum.
 */
export class RunFolder {
  readonly path: string;
  readonly config: RunConfig;

  private constructor(path: string, config: RunConfig) {
    this.path = path;
    this.config = config;
  }

  /** Makes the folder; refuses one that already holds a run. */
  static async create(path: string, config: RunConfig): Promise<RunFolder> {
    const files = await nodeFiles("run");
    await files.mkdir(path, { recursive: true });
    if ((await files.readdir(path)).includes(names.config)) {
      throw new FormatError(`[run] ${path} already holds a run`, "Resume it, or name another folder.");
    }
    await writeText(`${path}/${names.config}`, `${JSON.stringify(config, null, 2)}\n`);
    return new RunFolder(path, config);
  }

  /** Opens a folder that holds a run. */
  static async open(path: string): Promise<RunFolder> {
    const files = await nodeFiles("run");
    let text: string;
    try {
      text = await files.readFile(`${path}/${names.config}`, "utf8");
    } catch (cause) {
      throw new FormatError(`[run] ${path} is no run: expected ${names.config} in it`, undefined, { cause });
    }
    const config = parse(text, `${path}/${names.config}`) as RunConfig;
    if (config?.format !== "linnet-run" || config.version !== 1) {
      throw new FormatError(
        `[run] ${path}/${names.config} describes no run of this version: expected format linnet-run, version 1`,
      );
    }
    return new RunFolder(path, config);
  }

  /** Where a file of the run lies. */
  file(name: keyof typeof names | string): string {
    return `${this.path}/${names[name as keyof typeof names] ?? name}`;
  }

  /** Adds lines to the metrics. */
  async log(lines: readonly object[]): Promise<void> {
    const files = await nodeFiles("run");
    await files.appendFile(this.file("metrics"), lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  }

  /** The metrics; a last line that was cut short is left out. */
  async metrics(): Promise<Record<string, unknown>[]> {
    const files = await nodeFiles("run");
    const text = await files.readFile(this.file("metrics"), "utf8").catch(() => "");
    return text.split("\n").flatMap((line) => {
      try {
        return line === "" ? [] : [JSON.parse(line) as Record<string, unknown>];
      } catch {
        return [];
      }
    });
  }

  /** Writes the weights and all that resuming needs. */
  async save(run: Resumable): Promise<void> {
    const weights = await weightEntries(run.module);
    const resume = new Map<string, TensorSource>();
    for (const [name, entry] of weights) resume.set(`weights/${name}`, entry);
    for (const [name, slot] of run.optimizer.state().tensors)
      resume.set(`optimizer/${name}`, await entryOf(slot));
    for (const [name, value] of Object.entries(run.carried ?? {}))
      resume.set(`carried/${name}`, await entryOf(value));
    for (const [name, value] of run.average ?? []) resume.set(`average/${name}`, await entryOf(value));
    const { steps } = run.optimizer.state();
    const place = { step: String(run.step), optimizerSteps: String(steps), seconds: String(run.seconds) };
    await saveSafetensors(this.file("resume"), resume, { ...place, checksum: await checksum(resume) });
    const published = new Map(weights);
    for (const [name, value] of run.average ?? []) published.set(name, await entryOf(value));
    await this.publish(published, run.step);
  }

  /** Writes the weights alone, of a model that will not be trained on. */
  async saveModel(module: Module, step: number): Promise<void> {
    await this.publish(await weightEntries(module), step);
  }

  /** Fills a module with the saved weights. */
  async loadModel(module: Module, device: Device): Promise<void> {
    const file = await openChecked(this.file("model"));
    try {
      await readWeights(module, device, file);
    } finally {
      await file.close();
    }
  }

  /** Puts module and optimizer back to where the last save left them, and cuts the metrics to there. */
  async resume(
    module: Module,
    makeOptimizer: () => Optimizer,
    device: Device,
  ): Promise<{
    optimizer: Optimizer;
    step: number;
    seconds: number;
    kept: ReadonlyMap<string, Float32Array>;
  }> {
    const file = await openChecked(this.file("resume"));
    try {
      const isOther = (name: string): boolean => !name.startsWith("weights/");
      await readWeights(module, device, file, "weights/", isOther);
      const slots = new Map<string, Float32Array>();
      const kept = new Map<string, Float32Array>();
      for (const name of file.tensors.keys()) {
        if (name.startsWith("optimizer/")) slots.set(name.slice(10), toFloat32(await file.read(name)));
        else if (isOther(name)) kept.set(name, toFloat32(await file.read(name)));
      }
      const optimizer = makeOptimizer();
      optimizer.restore(Number(file.metadata["optimizerSteps"]), slots);
      const step = Number(file.metadata["step"]);
      await this.cutMetrics(step);
      return { optimizer, step, seconds: Number(file.metadata["seconds"]), kept };
    } finally {
      await file.close();
    }
  }

  private async publish(weights: ReadonlyMap<string, TensorSource>, step: number): Promise<void> {
    const more = { step: String(step), checksum: await checksum(weights) };
    await saveSafetensors(this.file("model"), weights, more);
  }

  private async cutMetrics(step: number): Promise<void> {
    const lines = (await this.metrics()).filter((line) => !(Number(line["step"]) > step));
    await writeText(this.file("metrics"), lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  }
}

function parse(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new FormatError(`[run] ${path} is not JSON`, undefined, { cause });
  }
}

/** Writes under a temporary name and renames, so that no reader ever sees half a file. */
export async function writeText(path: string, text: string): Promise<void> {
  const files = await nodeFiles("run");
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    await files.writeFile(temporary, text);
    await files.rename(temporary, path);
  } catch (cause) {
    await files.rm(temporary, { force: true }).catch(() => {});
    throw new FormatError(`[run] ${path} could not be written: ${(cause as Error).message}`, undefined, {
      cause,
    });
  }
}

/** SHA-256 over names, shapes and bytes, in the order of the names. */
async function checksum(entries: ReadonlyMap<string, TensorEntry | TensorSource>): Promise<string> {
  const { createHash } = (await import("node:crypto")) as typeof import("node:crypto");
  const hash = createHash("sha256");
  for (const name of [...entries.keys()].sort()) {
    const { shape, bytes } = entries.get(name)!;
    hash.update(`${name} ${shape.join(",")}\n`);
    hash.update(bytes instanceof Uint8Array ? bytes : await bytes());
  }
  return hash.digest("hex");
}

/** Opens a file of a run and compares its contents with their checksum. */
async function openChecked(path: string): Promise<SafetensorsFile> {
  const file = await openSafetensors(path);
  const entries = new Map<string, TensorEntry>();
  for (const name of file.tensors.keys()) entries.set(name, await file.read(name));
  if (file.metadata["checksum"] === (await checksum(entries))) return file;
  await file.close();
  throw new FormatError(
    `[run] ${path} was changed after it was written: its contents do not fit their checksum`,
    "Restore the file from a copy, or train again.",
  );
}
