// The scratch of one thread in the token-after-token forms.

/** What one thread works on: a tile of tokens and the state of one unit. */
// @ts-ignore: decorator
@unmanaged export class Work {
  /** Panels [K][16] of the unit's columns, one after another. */
  state: usize;
  erase: usize;
  write: usize;
  query: usize;
  /** Gates: one per token, or a row of K. */
  gate: usize;
  beta: usize;
  /** Write key times query, per token. */
  overlap: usize;
  /** A row of zeros: what the token before the first one wrote. */
  zeros: usize;
  /** The written value of the token before, 16 floats. */
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
