import { ConfigError } from "../../errors.ts";
import type { LayerOptions } from "../layer.ts";

/** Axes of a layer of attention. */
export interface AttentionLayerSizes {
  readonly D: number;
  readonly HQ: number;
  readonly HKV: number;
  readonly K: number;
  readonly V: number;
}

/**
 * The axes that the options of a layer ask for; K is D/HQ and V is K unless given.
 *
 * @throws ConfigError for a size that is no whole number >= 1, heads that do not group, valueHeads, or a rotary part
 * wider than a head.
 */
export function attentionSizes(
  who: string,
  options: LayerOptions & { readonly keyValueHeads?: number },
): AttentionLayerSizes {
  const { width: D, heads: HQ, valueHeads, rotary } = options;
  const K = options.keyWidth ?? D / HQ;
  const sizes = { D, HQ, HKV: options.keyValueHeads ?? HQ, K, V: options.valueWidth ?? K };
  const names = {
    ...{ D: "width", HQ: "heads", HKV: "keyValueHeads", K: "keyWidth", V: "valueWidth" },
  } as const;
  for (const axis of ["D", "HQ", "HKV", "K", "V"] as const) {
    if (Number.isInteger(sizes[axis]) && sizes[axis] >= 1) continue;
    throw new ConfigError(
      `[${who}] ${names[axis]} is a size: expected a whole number >= 1, got ${sizes[axis]} (width ${D}, heads ${HQ})`,
      "Where a width per head does not follow from width and heads, pass keyWidth.",
    );
  }
  if (HQ % sizes.HKV !== 0) {
    throw new ConfigError(
      `[${who}] heads group over keyValueHeads: expected a multiple of ${sizes.HKV}, got heads ${HQ}`,
      "Query head j reads key head floor(j / (heads/keyValueHeads)).",
    );
  }
  if (valueHeads !== undefined) {
    throw new ConfigError(
      `[${who}] valueHeads are those of recurrences: expected keyValueHeads, got valueHeads ${valueHeads}`,
      "Attention shares key-value heads among query heads; pass keyValueHeads.",
    );
  }
  if (rotary?.width === undefined || rotary.width <= K) return sizes;
  throw new ConfigError(
    `[${who}] rotary turns a part of a head: expected rotary.width <= keyWidth ${K}, got ${rotary.width}`,
  );
}
