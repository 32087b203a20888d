import type { Device } from "../src/device/index.ts";
import type { MeasureOptions } from "./measure.ts";
import type { PeakMeter } from "./peak.ts";
import type { Peers } from "./peers/peers.ts";

/** One line of a benchmark: what was measured, by name. Figures of peers are by the name of their package. */
export interface Row {
  readonly name: string;
  readonly [figure: string]: string | number | undefined | Readonly<Record<string, number | undefined>>;
}

/** A column of the table for people. */
export interface Column {
  readonly title: string;
  text(row: Row): string;
}

/** What a benchmark is given. */
export interface Context {
  /** Devices by the threads they run on: always one with 1, and one with more where the machine has them. */
  readonly devices: ReadonlyMap<number, Device>;
  readonly peak: PeakMeter;
  /** Opens a device that has held nothing yet, for counting bytes; whoever asks closes it. */
  readonly open: (threads: number) => Promise<Device>;
  readonly peers: Peers;
  readonly measure: MeasureOptions;
  /** What the command line says beyond what every benchmark takes, by the option's name. */
  readonly options: Readonly<Record<string, string | undefined>>;
}

/** A benchmark: a file of this folder and a line in `all.ts`. */
export interface Bench {
  readonly name: string;
  /** One sentence for the list. */
  readonly about: string;
  readonly columns: readonly Column[];
  /** Rows as they are measured. */
  run(context: Context): AsyncIterable<Row>;
}

/** A figure with as many digits as it can mean. */
export function digits(value: unknown, places = 1): string {
  return typeof value === "number" && Number.isFinite(value) ? value.toFixed(places) : "";
}

/** A column that prints one figure of the row. */
export function figure(title: string, key: string, places = 1): Column {
  return { title, text: (row) => (typeof row[key] === "string" ? row[key] : digits(row[key], places)) };
}

/** A share of 1 as a column of per cent. */
export function percent(title: string, key: string): Column {
  return { title, text: (row) => (typeof row[key] === "number" ? `${Math.round(row[key] * 100)} %` : "") };
}

/** A column that prints a peer's figure. */
export function peerFigure(title: string, peer: string): Column {
  return { title, text: (row) => digits((row["peers"] as Record<string, number> | undefined)?.[peer]) };
}

/** The numbers of an option such as `--T 1024,4096`. */
export function numbers(text: string | undefined, usual: readonly number[]): readonly number[] {
  return text === undefined ? usual : text.split(",").map(Number);
}
