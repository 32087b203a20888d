/** Engine room 2: exact attention and what its relatives share. Everything here builds dispatches for any device. */
export {
  type AttentionProblem,
  type AttentionSizes,
  type Bias,
  type CacheRows,
  type HeadRows,
  headRows,
  type PackedTokens,
} from "./problem.ts";
export {
  attentionBackward,
  attentionBiasBackward,
  attentionForward,
  type BackwardOperands,
  biasBackward,
  deltaBackward,
  type ForwardOperands,
  keysBackward,
  queriesBackward,
  tiledBackward,
  tiledForward,
} from "./tiled.ts";
