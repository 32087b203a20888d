/** Engine room 2: exact attention and what its relatives share. Everything here builds dispatches for any device. */
export {
  attentionDecode,
  type DecodeOperands,
  decodeForward,
  decodeJoinForward,
  decodePartials,
} from "./decode.ts";
export { attentionMatrix, type MatrixOperands, matrixForward } from "./matrix.ts";
export {
  attentionJoin,
  attentionJoinBackward,
  attentionMerge,
  joinBackward,
  joinForward,
  type MergeCotangent,
  type MergeSizes,
  mergeForward,
  type Part,
} from "./merge.ts";
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
