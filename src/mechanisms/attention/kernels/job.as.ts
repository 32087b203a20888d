// What the tiled kernels are told about their job, laid over the argument block in the order of problem.ts.

/** Operands that a job does not have hold any address. Strides are in elements. */
@unmanaged
export class Job {
  q: usize;
  k: usize;
  v: usize;
  keyMask: usize;
  bias: usize;
  cuSeqlens: usize;
  slots: usize;
  lengths: usize;
  output: usize;
  lse: usize;
  rowMax: usize;
  dOutput: usize;
  dLse: usize;
  dRowMax: usize;
  delta: usize;
  dQ: usize;
  dK: usize;
  dV: usize;
  dBias: usize;
  weights: usize;

  batch: i32;
  time: i32;
  keyTime: i32;
  queryHeads: i32;
  keyHeads: i32;
  keyWidth: i32;
  valueWidth: i32;
  causal: i32;
  offset: i32;
  window: i32;
  maskBytes: i32;
  hasBias: i32;
  biasBatch: i32;
  biasHead: i32;
  biasRow: i32;
  dBiasBatch: i32;
  dBiasHead: i32;
  sequences: i32;
  cached: i32;
  tileQueries: i32;
  tileKeys: i32;
  tilesPerRow: i32;
  blockKeys: i32;
  hasRowMax: i32;
  hasDLse: i32;

  qBatch: i32;
  qToken: i32;
  qHead: i32;
  kBatch: i32;
  kToken: i32;
  kHead: i32;
  vBatch: i32;
  vToken: i32;
  vHead: i32;
  outputBatch: i32;
  outputToken: i32;
  outputHead: i32;
  dOutputBatch: i32;
  dOutputToken: i32;
  dOutputHead: i32;
  dQBatch: i32;
  dQToken: i32;
  dQHead: i32;
  dKBatch: i32;
  dKToken: i32;
  dKHead: i32;
  dVBatch: i32;
  dVToken: i32;
  dVHead: i32;

  scale: f32;
}

/** Address of the rows of one head from a token on. */
// @ts-ignore: decorator
@inline export function rowsAt(base: usize, batchStride: i32, tokenStride: i32, headStride: i32, batch: i32, token: i32, head: i32): usize {
  return base + ((<usize>batch * batchStride + <usize>token * tokenStride + <usize>head * headStride) << 2);
}
