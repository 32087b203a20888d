import type { TensorNames } from "../../../nn/tensor-names.ts";
import type { DecoderConfig } from "../../config.ts";
import type { ConfigJson } from "./config-json.ts";

/** Names of the tensors of one kind of mixer, and what stands before them: `*` is the layer. */
export interface MixerNames extends TensorNames {
  readonly prefix: string;
}

/** Names of all tensors of a published model. */
export interface ModelNames {
  /** Whole own names: embedding, norms, feed-forwards, output layer. */
  readonly model: TensorNames;
  /** By the id of the mechanism. */
  readonly mixers: Readonly<Record<string, MixerNames>>;
  /** Beginnings of names that files may have in place of another: those of models that this one is a part of. */
  readonly alsoUnder?: Readonly<Record<string, string>>;
  /** Tensors that files may hold and the model does not read, `*` for any text. */
  readonly passedOver?: readonly string[];
}

/** A tensor that follows from the configuration and stands in files nevertheless. */
export interface DerivedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  values(): Float32Array;
}

/** A format in which models of the family are published: a configuration and names of tensors. */
export interface PublishedFormat {
  /** `model_type` in config.json; the first is written. */
  readonly modelTypes: readonly string[];
  /** The library whose files these are. */
  readonly library: string;
  /** Where two libraries have one `model_type`: whether a configuration is of this one. */
  claims?(config: ConfigJson): boolean;
  readonly names: ModelNames;
  /**
   * The decoder that a configuration describes.
   *
   * @throws FormatError for entries that make no model, UnsupportedError for variants that are not built here.
   */
  read(config: ConfigJson): DecoderConfig;
  /**
   * The configuration of a decoder, without its `model_type`.
   *
   * @throws UnsupportedError for a decoder that the format has no words for.
   */
  write(config: DecoderConfig): ConfigJson;
  derived?(config: ConfigJson, decoder: DecoderConfig): readonly DerivedTensor[];
}
