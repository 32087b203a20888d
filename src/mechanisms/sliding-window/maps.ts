import type { Tensor } from "../../autograd/tensor.ts";
import { repeatHeads } from "../../ops/repeat-heads/index.ts";
import { perHead } from "../attention/per-head.ts";
import { eluPlusOneMap } from "../feature-maps/elu-plus-one.ts";
import { hedgehog } from "../feature-maps/hedgehog.ts";
import type { FeatureMap } from "../feature-maps/index.ts";

/** φ of queries and of keys, both to `[B,T,HQ,F]`. */
export interface Maps {
  readonly mapQuery: (q: Tensor) => Tensor;
  readonly mapKey: (k: Tensor) => Tensor;
  /** F for keys of width K. */
  readonly features: number;
}

/** A map without parameters, the same for queries and keys. */
export function plainMaps(queryHeads: number, keyWidth: number, map: FeatureMap = eluPlusOneMap): Maps {
  return {
    mapQuery: (q) => map.apply(q),
    mapKey: (k) => repeatHeads(map.apply(k), queryHeads / k.shape[2]!),
    features: map.width(keyWidth),
  };
}

/** max([softmax(x W), softmax(−x W)], 1e-12) with a matrix for every query head, `[HQ,K,F/2]`. */
export function learnedMaps(queryFeatures: Tensor, keyFeatures: Tensor): Maps {
  const HQ = keyFeatures.shape[0]!;
  return {
    mapQuery: (q) => hedgehog(perHead(q, queryFeatures, false)),
    mapKey: (k) => hedgehog(perHead(repeatHeads(k, HQ / k.shape[2]!), keyFeatures, false)),
    features: 2 * keyFeatures.shape[2]!,
  };
}
