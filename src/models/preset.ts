import type { DecoderConfig } from "./config.ts";

/** A published model as data, and a model of the same shape small enough for a laptop. */
export interface Preset {
  readonly id: string;
  readonly title: string;
  /** Where the published sizes stand. */
  readonly source: string;
  readonly published: DecoderConfig;
  readonly tiny: DecoderConfig;
}
