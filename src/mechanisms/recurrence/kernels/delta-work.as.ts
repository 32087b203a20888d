// The scratch of one thread in the token-after-token forms.

/** What one thread works on: a tile of tokens and the state of one unit. */
// @ts-ignore: decorator
@unmanaged export class Work {
  /** Panels [K][16] of the unit's columns, one after another. */
  state: usize;
  /** Two tokens at a time: four floats a key channel and pair of what is read and of what is written; coefficients. */
  rows: usize;
  writes: usize;
  coefficients: usize;
  pair: usize;
  /** A row of zeros: the second token of a pair that has none. */
  nothing: usize;
  /** 32 floats for its output. */
  spare: usize;
  /** One token at a time: packed rows. */
  erase: usize;
  write: usize;
  query: usize;
  /** Gates: one per token, or a row of K. */
  gate: usize;
  beta: usize;
  /** Write key times query, per token. */
  overlap: usize;
  /** The values that the pair or token before wrote: 16 floats for each of its two, block of columns after block. */
  u: usize;
  /** Staged rows of 16 values and outputs for a panel that is not full. */
  values: usize;
  outputs: usize;
  o: usize;
  oRow: i32;
  /** Packed rows have this many floats. */
  stride: i32;
  tokens: i32;
  flags: i32;
  scale: f32;
}
