/**
 * `npm run bench -- NAME [--json] [--tier a|b|c] [--samples N]`: one benchmark as a table for people or one JSON
 * document for machines. Without a name it lists what there is.
 */
import { availableParallelism, cpus, loadavg } from "node:os";
import { parseArgs } from "node:util";
import { type Device, openWasm } from "../src/device/index.ts";
import * as all from "./all.ts";
import type { Bench, Context, Row } from "./bench.ts";
import { interleave } from "./measure.ts";
import { peakMeter } from "./peak.ts";
import { openPeers } from "./peers/peers.ts";

/** Options with a word or number behind them; each benchmark says in its list which it reads. */
const words = ["tier", "samples", "ids", "T", "heads", "key", "value", "threads", "pass", "python"] as const;

const usage = "npm run bench -- NAME [--json] [--samples N] [--tier a|b|c] [--OPTION VALUE]";

type Tier = "auto" | "a" | "b" | "c";

const benches = Object.values(all) as readonly Bench[];

/** The device of a benchmark on one thread, and on two where the machine has two cores. */
async function openDevices(tier: Tier): Promise<Map<number, Device>> {
  const devices = new Map<number, Device>();
  for (const threads of availableParallelism() > 1 ? [1, 2] : [1]) {
    devices.set(threads, await openWasm({ threads, tier }));
  }
  return devices;
}

async function measurePeak({ devices, peak, measure }: Context): Promise<void> {
  for (const [threads, device] of devices) {
    const limits = [peak.fma(device), peak.copy(device)];
    const timings = await interleave(
      limits.map(({ contender }) => contender),
      measure,
    );
    for (const [i, key] of [`fma${threads}`, `memory${threads}`].entries()) {
      peak.note(key, limits[i]!.amount / timings[i]!.best);
    }
  }
}

/** Billions a second, and memory as all threads together have it. */
function peakFigures({ peak, devices }: Context): Record<string, number> {
  const figures = Object.entries(peak.best).map(([key, rate]) => [key, rate / 1e9] as const);
  const memory = Math.max(...[...devices.keys()].map((threads) => peak.best[`memory${threads}`] ?? 0));
  return { ...Object.fromEntries(figures), memory: memory / 1e9 };
}

function machineOf({ devices }: Context): Record<string, string | number | readonly string[]> {
  const info = devices.get(1)!.info();
  return {
    node: process.versions.node,
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    threads: Math.max(...devices.keys()),
    tier: info.tier ?? "none",
    load: loadavg()[0]!,
    notes: info.notes,
  };
}

async function printTable(bench: Bench, rows: AsyncIterable<Row>): Promise<void> {
  const widths = bench.columns.map(({ title }) => Math.max(10, title.length + 2));
  const line = (cells: readonly string[]): string =>
    cells.map((cell, i) => cell.padStart(widths[i]!)).join("");
  console.log(line(bench.columns.map(({ title }) => title)));
  for await (const row of rows) console.log(line(bench.columns.map((column) => column.text(row))));
}

async function run(bench: Bench, context: Context, json: boolean): Promise<void> {
  if (context.peers.missing.length > 0) {
    console.error(`not installed: ${context.peers.missing.join(", ")}; npm run bench:peers installs them`);
  }
  await measurePeak(context);
  if (!json) {
    console.log(JSON.stringify({ machine: machineOf(context), peak: peakFigures(context) }));
    await printTable(bench, bench.run(context));
    return;
  }
  const rows: Row[] = [];
  for await (const row of bench.run(context)) rows.push(row);
  console.log(JSON.stringify({ machine: machineOf(context), peak: peakFigures(context), rows }));
}

function list(): string {
  const lines = benches.map(({ name, about }) => `${name.padEnd(12)}${about}`);
  return `${usage}\n\n${lines.join("\n")}`;
}

/** The benchmark and options that were asked for; undefined after words on what is wrong with them. */
function asked():
  | { bench: Bench; values: Readonly<Record<string, string | undefined>>; json: boolean }
  | undefined {
  const refuse = (what: string): undefined => {
    console.error(`[bench] ${what}\n${usage}`);
    process.exitCode = 2;
  };
  let parsed: ReturnType<typeof parse>;
  try {
    parsed = parse();
  } catch (error) {
    return refuse((error as Error).message.split(". ")[0]!);
  }
  const {
    json = false,
    help = false,
    ...values
  } = parsed.values as Record<string, string | undefined> & {
    json?: boolean;
    help?: boolean;
  };
  const [name] = parsed.positionals;
  if (name === undefined || help) {
    console.log(list());
    return undefined;
  }
  const bench = benches.find((one) => one.name === name);
  if (bench === undefined) {
    return refuse(
      `no benchmark is called ${name}: expected one of ${benches.map((one) => one.name).join(", ")}`,
    );
  }
  if (!["auto", "a", "b", "c"].includes(values["tier"] ?? "auto")) {
    return refuse(`--tier is one of auto, a, b, c: got ${values["tier"]}`);
  }
  if (!(Number(values["samples"] ?? 15) >= 1))
    return refuse(`--samples is a number from 1 on: got ${values["samples"]}`);
  return { bench, values, json };
}

function parse(): { values: Readonly<Record<string, unknown>>; positionals: readonly string[] } {
  return parseArgs({
    allowPositionals: true,
    options: {
      json: { type: "boolean" },
      help: { type: "boolean", short: "h" },
      ...Object.fromEntries(words.map((name) => [name, { type: "string" as const }])),
    },
  });
}

async function main(): Promise<void> {
  const wanted = asked();
  if (wanted === undefined) return;
  const { bench, values, json } = wanted;
  const tier = (values["tier"] ?? "auto") as Tier;
  const devices = await openDevices(tier);
  const measure = { samples: Number(values["samples"] ?? 15) };
  const open = (threads: number): Promise<Device> => openWasm({ threads, tier });
  const context: Context = { devices, open, peak: peakMeter(), peers: openPeers(), measure, options: values };
  try {
    await run(bench, context, json);
  } finally {
    context.peers.close();
    for (const device of devices.values()) device.close();
  }
}

await main();
