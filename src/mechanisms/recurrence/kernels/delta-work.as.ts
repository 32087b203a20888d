// The scratch of one thread in the token-after-token forms.

/** What one thread works on: a tile of tokens and the state of one unit. */
// @ts-ignore: decorator
@unmanaged export class Work {
  /** What the units side by side carry from tile to tile, the bytes of one, and of the one whose turn it is: */
  carried: usize;
  carriedBytes: usize;
  /** panels [K][16] of its columns, one after another; */
  state: usize;
  /** the pair before the tile. */
  before: usize;
  /** Its sequence and value head as one number, its value head, its first value column and the one behind its last. */
  pair: i32;
  head: i32;
  first: i32;
  end: i32;
  /** Two tokens at a time: a slot a pair, and rows with decays per channel, four that are read and three for writing. */
  pairs: usize;
  rows: usize;
  writes: usize;
  /** A row of zeros, the second token of a pair that has none, and one of gates that change nothing. */
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
  /** Rows of 16 values for a panel that is not full; a tile's outputs, which go to memory together. */
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
