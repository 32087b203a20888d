import type { DecoderConfig } from "./config.ts";
import { Decoder } from "./decoder.ts";

/** What a model takes, computed from its shapes; nothing is allocated. */
export interface ModelSize {
  readonly parameters: number;
  /** Bytes of the weights in float32. */
  readonly weightBytes: number;
  /** Bytes of state of one sequence that do not depend on its length. */
  readonly stateBytes: number;
  /** Bytes that caches add for every token of one sequence. */
  readonly cacheBytesPerToken: number;
}

/** The size of a model. */
export function modelSize(config: DecoderConfig): ModelSize {
  const model = new Decoder(config);
  let state = 0;
  let cache = 0;
  for (const { stateSpec } of model.mixers) {
    for (const { shape, cache: grows } of Object.values(stateSpec)) {
      const size = (grows ? shape.slice(1) : shape).reduce((product, length) => product * length, 1);
      if (grows) cache += size;
      else state += size;
    }
  }
  const parameters = model.parameterCount;
  return { parameters, weightBytes: 4 * parameters, stateBytes: 4 * state, cacheBytesPerToken: 4 * cache };
}
