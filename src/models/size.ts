import type { Layer } from "../mechanisms/layer.ts";
import type { DecoderConfig } from "./config.ts";
import { Decoder } from "./decoder.ts";

/** What one sequence carries in a layer, in bytes of float32. */
export interface CarriedBytes {
  /** What does not depend on its length. */
  readonly stateBytes: number;
  /** What caches add for every token. */
  readonly cacheBytesPerToken: number;
}

/** What a model takes, computed from its shapes; nothing is allocated. */
export interface ModelSize extends CarriedBytes {
  readonly parameters: number;
  /** Bytes of the weights in float32. */
  readonly weightBytes: number;
}

/** What one sequence carries in a layer. */
export function layerBytes({ stateSpec }: Pick<Layer, "stateSpec">): CarriedBytes {
  const bytes = { stateBytes: 0, cacheBytesPerToken: 0 };
  for (const { shape, cache } of Object.values(stateSpec)) {
    const size = (cache ? shape.slice(1) : shape).reduce((product, length) => product * length, 4);
    bytes[cache ? "cacheBytesPerToken" : "stateBytes"] += size;
  }
  return bytes;
}

/** The size of a model: what its layers carry, and its weights. */
export function modelSize(config: DecoderConfig): ModelSize {
  const model = new Decoder(config);
  const layers = model.mixers.map(layerBytes);
  const sum = (part: keyof CarriedBytes): number => layers.reduce((total, bytes) => total + bytes[part], 0);
  const parameters = model.parameterCount;
  return {
    ...{ parameters, weightBytes: 4 * parameters },
    ...{ stateBytes: sum("stateBytes"), cacheBytesPerToken: sum("cacheBytesPerToken") },
  };
}
