/** Addresses and sizes are multiples of this many bytes: a cache line, and the widest load of any tier. */
export const unit = 64;

/** A run of memory, taken or free. Neighbours know each other so that free ones melt together. */
export interface Block {
  address: number;
  bytes: number;
  free: boolean;
  /** How many persistent storages live in a taken run; the heap itself does not look at it. */
  users: number;
  /** The place of a taken run in its owner's list. */
  index: number;
  before: Block | undefined;
  after: Block | undefined;
  /** Neighbours in the list of free blocks of the same class. */
  previous: Block | undefined;
  next: Block | undefined;
}

/** Sizes in units fall into classes a sixteenth apart: exact up to 16, then 16 to every power of two. */
export function classOf(units: number): number {
  if (units < 16) return units;
  const power = 31 - Math.clz32(units);
  return 16 + ((power - 4) << 4) + ((units >> (power - 4)) & 15);
}

/** The smallest count of units at or above that begins a class, so that sizes close to each other share memory. */
export function roundToClass(units: number): number {
  if (units < 32) return units;
  const step = 1 << (27 - Math.clz32(units));
  return (units + step - 1) & -step;
}

/** Bytes as whole units, at least one. */
export function unitsOf(bytes: number): number {
  return bytes <= unit ? 1 : Math.ceil(bytes / unit);
}

const classes = classOf(2 ** 26) + 1;

/** What the heap asks of the memory under it. */
export interface Ground {
  /** Makes room for `bytes` more behind the end; the new end, or the old one where that is refused. */
  extend(bytes: number): number;
  /** Gives back what is held idle, before the memory is made to grow; whether there was any. */
  reclaim(): boolean;
}

/**
 * Taken and free runs of one linear memory. Free runs are kept by class of size with a bitmap over the classes, so
 * that taking and giving back cost the same however many there are.
 */
export class Heap {
  readonly #ground: Ground;
  readonly #bins: (Block | undefined)[] = new Array(classes).fill(undefined);
  readonly #map = new Uint32Array((classes + 31) >> 5);
  #last: Block | undefined;
  #end: number;
  /** Runs taken since the start. */
  takes = 0;
  /** Bytes taken at this moment. */
  used = 0;
  /** Most bytes taken at one time. */
  peak = 0;

  constructor(start: number, end: number, ground: Ground) {
    this.#ground = ground;
    this.#end = Math.ceil(start / unit) * unit;
    this.#append(end);
  }

  /** A run of at least `bytes`; undefined where there is none and the memory cannot grow. */
  take(bytes: number): Block | undefined {
    const wanted = unitsOf(bytes) * unit;
    let block = this.#find(wanted);
    while (block === undefined && this.#ground.reclaim()) block = this.#find(wanted);
    if (block === undefined) {
      const tail = this.#last?.free ? this.#last.bytes : 0;
      this.#append(this.#ground.extend(wanted - tail));
      block = this.#find(wanted);
      if (block === undefined) return undefined;
    }
    this.#unlink(block);
    block.free = false;
    this.#split(block, wanted);
    this.takes++;
    this.used += block.bytes;
    if (this.used > this.peak) this.peak = this.used;
    return block;
  }

  /** Ends a run; free neighbours become one with it. */
  give(block: Block): void {
    this.used -= block.bytes;
    let whole = block;
    const { before, after } = block;
    if (before?.free) {
      this.#unlink(before);
      before.bytes += block.bytes;
      this.#join(before, after);
      whole = before;
    }
    if (after?.free) {
      this.#unlink(after);
      whole.bytes += after.bytes;
      this.#join(whole, after.after);
    }
    this.#link(whole);
  }

  /** Bytes of the longest free run. */
  longest(): number {
    let longest = 0;
    for (let block = this.#last; block !== undefined; block = block.before) {
      if (block.free && block.bytes > longest) longest = block.bytes;
    }
    return longest;
  }

  #find(bytes: number): Block | undefined {
    const units = bytes / unit;
    const sure = this.#firstFrom(classOf(roundToClass(units)));
    if (sure !== undefined) return sure;
    for (let block = this.#bins[classOf(units)]; block !== undefined; block = block.next) {
      if (block.bytes >= bytes) return block;
    }
    return undefined;
  }

  /** The first free block of this class or a higher one. */
  #firstFrom(from: number): Block | undefined {
    let word = from >> 5;
    let bits = this.#map[word]! & (-1 << (from & 31));
    while (bits === 0) {
      if (++word >= this.#map.length) return undefined;
      bits = this.#map[word]!;
    }
    return this.#bins[(word << 5) + 31 - Math.clz32(bits & -bits)];
  }

  #split(block: Block, wanted: number): void {
    const rest = block.bytes - wanted;
    if (rest === 0) return;
    const other = newBlock(block.address + wanted, rest);
    block.bytes = wanted;
    const { after } = block;
    this.#join(block, other);
    this.#join(other, after);
    this.#link(other);
  }

  #join(before: Block, after: Block | undefined): void {
    before.after = after;
    if (after !== undefined) after.before = before;
    else this.#last = before;
  }

  #append(end: number): void {
    const bytes = Math.floor((end - this.#end) / unit) * unit;
    if (bytes <= 0) return;
    const block = newBlock(this.#end, bytes);
    this.#end += bytes;
    if (this.#last !== undefined) this.#join(this.#last, block);
    this.#last = block;
    this.used += bytes;
    this.give(block);
  }

  #link(block: Block): void {
    const index = classOf(block.bytes / unit);
    const head = this.#bins[index];
    block.free = true;
    block.previous = undefined;
    block.next = head;
    if (head !== undefined) head.previous = block;
    this.#bins[index] = block;
    this.#map[index >> 5]! |= 1 << (index & 31);
  }

  #unlink(block: Block): void {
    const index = classOf(block.bytes / unit);
    const { previous, next } = block;
    if (next !== undefined) next.previous = previous;
    if (previous !== undefined) previous.next = next;
    else {
      this.#bins[index] = next;
      if (next === undefined) this.#map[index >> 5]! &= ~(1 << (index & 31));
    }
    block.previous = undefined;
    block.next = undefined;
  }
}

function newBlock(address: number, bytes: number): Block {
  return {
    address,
    bytes,
    free: false,
    users: 0,
    index: 0,
    before: undefined,
    after: undefined,
    previous: undefined,
    next: undefined,
  };
}
