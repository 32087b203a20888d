import { ConfigError } from "../errors.ts";
import { expandPattern } from "../models/config.ts";
import type { Decoder } from "../models/decoder.ts";
import type { ModelNames } from "../models/presets/published/index.ts";
import type { Parameter } from "../nn/module.ts";
import { fileNames, type JoinedTensor, type TensorNames, withNumbers } from "../nn/tensor-names.ts";

/** A tensor as files of a format hold it, and the parameters that its rows belong to. */
export interface PlannedTensor {
  /** Its spellings; the first is written. */
  readonly names: readonly string[];
  /** As the file has it. */
  readonly shape: readonly number[];
  readonly parts: readonly Parameter[];
  /** Runs of elements in the order of the file. */
  segments(): readonly Segment[];
}

/** A run of elements in a file that lies in one piece in a parameter. */
export interface Segment {
  readonly part: Parameter;
  /** Elements from the beginning of the file's tensor. */
  readonly begin: number;
  readonly end: number;
  /** Elements from the beginning of the parameter. */
  readonly offset: number;
}

/** Where every parameter of a decoder stands in files of a format. */
export function planTensors(decoder: Decoder, names: ModelNames): readonly PlannedTensor[] {
  const parameters = new Map(decoder.namedParameters());
  const layers = expandPattern(decoder.config, { who: "checkpoint", causal: true });
  const planned: PlannedTensor[] = [];
  const done = new Set<JoinedTensor>();
  let block = "";
  for (const [own, parameter] of parameters) {
    const [, layer, rest] = /^blocks\.(\d+)\.mixer\.(.+)$/.exec(own) ?? [];
    if (layer === undefined || rest === undefined || names.model.renamed?.[own] !== undefined) {
      planned.push(single(names, names.model, own, "", parameter));
      continue;
    }
    const { mechanism, options } = layers[Number(layer)]!;
    const mixer = names.mixers[mechanism.id];
    if (mixer === undefined) {
      throw new ConfigError(`[checkpoint] the format has no names for layers of ${mechanism.id}`);
    }
    const prefix = withNumbers(mixer.prefix, [layer]);
    if (block !== layer) done.clear();
    block = layer;
    const joined = mixer.joined?.find(({ parts }) => parts.includes(rest));
    if (joined === undefined) planned.push(single(names, mixer, rest, prefix, parameter));
    if (joined === undefined || done.has(joined)) continue;
    done.add(joined);
    const { config } = decoder;
    const heads = (options["heads"] ?? config.mixer?.["heads"] ?? config.heads) as number;
    const parts = joined.parts.map((part) => parameters.get(`blocks.${layer}.mixer.${part}`)!);
    planned.push(plan(names, [prefix + joined.file], parts, joined.byHead ? heads : 1, joined.unitAxes));
  }
  return planned;
}

function single(
  names: ModelNames,
  own: TensorNames,
  name: string,
  prefix: string,
  parameter: Parameter,
): PlannedTensor {
  const spellings = fileNames(own, name)!.map((spelling) => prefix + spelling);
  return plan(names, spellings, [parameter], 1, own.unitAxes?.[name]);
}

function plan(
  { alsoUnder = {} }: ModelNames,
  spellings: readonly string[],
  parts: readonly Parameter[],
  groups: number,
  unitAxes: readonly number[] = [],
): PlannedTensor {
  const others = Object.entries(alsoUnder).flatMap(([usual, other]) =>
    spellings.flatMap((name) => (name.startsWith(usual) ? [other + name.slice(usual.length)] : [])),
  );
  const rows = parts.reduce((sum, part) => sum + part.shape[0]!, 0);
  const shape = [rows, ...parts[0]!.shape.slice(1)];
  for (const axis of unitAxes) shape.splice(axis, 0, 1);
  // Not before shapes were compared: an altered configuration can ask for any number of groups.
  let segments: readonly Segment[] | undefined;
  return {
    names: [...spellings, ...others],
    shape,
    parts,
    segments: () => {
      segments ??= segmentsOf(parts, groups);
      return segments;
    },
  };
}

function segmentsOf(parts: readonly Parameter[], groups: number): Segment[] {
  const segments: Segment[] = [];
  let begin = 0;
  for (let group = 0; group < groups; group++) {
    for (const part of parts) {
      const count = part.size / groups;
      segments.push({ part, begin, end: begin + count, offset: group * count });
      begin += count;
    }
  }
  return segments;
}
