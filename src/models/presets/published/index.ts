import { FormatError, UnsupportedError } from "../../../errors.ts";
import * as all from "./all.ts";
import type { ConfigJson } from "./config-json.ts";
import type { PublishedFormat } from "./format.ts";

export { type ConfigJson, formatConfig, parseConfig } from "./config-json.ts";
export type { DerivedTensor, ModelNames, PublishedFormat } from "./format.ts";

/** Every format that is read and written, by the first name of its type and its library. */
export const publishedFormats: readonly PublishedFormat[] = Object.values(
  all as Record<string, PublishedFormat>,
).sort((a, b) => (idOf(a) < idOf(b) ? -1 : 1));

function idOf({ modelTypes, library }: PublishedFormat): string {
  return `${modelTypes[0]} ${library}`;
}

/** Models of the family that are known and whose layers are not built yet. */
const planned: Readonly<Record<string, string>> = {
  rwkv7: "RWKV-7 is planned: its update reads the state before it decays, in a layer of its own",
};

const known = (): string => [...new Set(publishedFormats.flatMap(({ modelTypes }) => modelTypes))].join(", ");

/**
 * The format of a configuration, by its `model_type`.
 *
 * @throws FormatError where there is none or it is unknown, naming the known ones; UnsupportedError where it is planned.
 */
export function formatOf(config: ConfigJson, file: string): PublishedFormat {
  const type = config["model_type"];
  if (typeof type !== "string") {
    throw new FormatError(
      `[config] ${file} does not say what it describes: expected a model_type, one of ${known()}, got none`,
    );
  }
  if (Object.hasOwn(planned, type)) {
    throw new UnsupportedError(
      `[config] model_type ${type} is not read yet: expected one of ${known()}, got ${type}`,
      planned[type],
    );
  }
  const found = publishedFormats.find(
    ({ modelTypes, claims }) => modelTypes.includes(type) && (claims?.(config) ?? true),
  );
  if (found !== undefined) return found;
  throw new FormatError(
    `[config] model_type ${JSON.stringify(type)} is not known: expected one of ${known()}, got ${type}`,
  );
}

/**
 * The format in which a decoder can be saved: that of a given `model_type`, or the first that has words for it.
 *
 * @throws FormatError for a `model_type` that is not known, UnsupportedError where no format fits, with the reasons.
 */
export function formatFor(
  config: Parameters<PublishedFormat["write"]>[0],
  modelType?: string,
): { readonly format: PublishedFormat; readonly json: ConfigJson } {
  const candidates = publishedFormats.filter(
    ({ modelTypes }) => modelType === undefined || modelTypes.includes(modelType),
  );
  if (candidates.length === 0) {
    throw new FormatError(`[save] model_type ${modelType} is not known: expected one of ${known()}`);
  }
  const reasons: string[] = [];
  for (const format of candidates) {
    try {
      return { format, json: { model_type: modelType ?? format.modelTypes[0], ...format.write(config) } };
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
      reasons.push(error.message.split(". ")[0]!);
    }
  }
  throw new UnsupportedError(`[save] no published format has words for the model: ${reasons.join("; ")}`);
}
