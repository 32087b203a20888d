import type { Block, Heap } from "./heap.ts";
import { classOf, roundToClass, unit, unitsOf } from "./heap.ts";

/** Slabs of a scope grow in these steps: a small scope stays small, a large one takes few. */
const slabBytes = [64 * 1024, 256 * 1024, 1024 * 1024] as const;

/** Above this an allocation has a run of its own, which can outlive its scope without being copied. */
const largestInSlab = 512 * 1024;

const slabClasses = classOf(largestInSlab / unit) + 1;

/** Where an allocation came to lie: inside a slab, or in a run of its own. */
export interface Place {
  address: number;
  block: Block | undefined;
}

/** Runs that scopes gave back and the next scope takes again: after a warm-up nothing new is asked of the heap. */
export class IdleRuns {
  readonly heap: Heap;
  readonly #byBytes = new Map<number, Block[]>();
  #bytes = 0;

  constructor(heap: Heap) {
    this.heap = heap;
  }

  take(bytes: number): Block | undefined {
    const block = this.#byBytes.get(bytes)?.pop();
    if (block === undefined) return this.heap.take(bytes);
    this.#bytes -= block.bytes;
    return block;
  }

  give(block: Block): void {
    const list = this.#byBytes.get(block.bytes);
    if (list === undefined) this.#byBytes.set(block.bytes, [block]);
    else list.push(block);
    this.#bytes += block.bytes;
  }

  /** Everything idle goes back to the heap, where it can become part of something larger. */
  trim(): boolean {
    if (this.#bytes === 0) return false;
    for (const list of this.#byBytes.values()) for (const block of list) this.heap.give(block);
    this.#byBytes.clear();
    this.#bytes = 0;
    return true;
  }
}

/** The memory of one scope: slabs filled from front to back, what is released early in lists by size. */
export class Arena {
  readonly #idle: IdleRuns;
  readonly #slabs: Block[] = [];
  readonly #large: Block[] = [];
  readonly #released: (number[] | undefined)[] = new Array(slabClasses).fill(undefined);
  #at = 0;
  #end = 0;

  constructor(idle: IdleRuns) {
    this.#idle = idle;
  }

  /** Finds room for `bytes` and says where; false where there is none. */
  take(bytes: number, place: Place): boolean {
    const rounded = roundToClass(unitsOf(bytes)) * unit;
    if (rounded > largestInSlab) {
      const block = this.#idle.take(rounded);
      if (block === undefined) return false;
      this.adopt(block);
      place.address = block.address;
      place.block = block;
      return true;
    }
    const again = this.#released[classOf(rounded / unit)]?.pop();
    if (again === undefined && this.#at + rounded > this.#end && !this.#nextSlab(rounded)) return false;
    if (again === undefined) {
      place.address = this.#at;
      this.#at += rounded;
    } else place.address = again;
    place.block = undefined;
    return true;
  }

  /** Makes an allocation's memory free for the next one of this scope, or of any scope where it has its own run. */
  release(bytes: number, address: number, block: Block | undefined): void {
    if (block !== undefined) {
      this.abandon(block);
      this.#idle.give(block);
      return;
    }
    const index = classOf(roundToClass(unitsOf(bytes)));
    const list = this.#released[index];
    if (list === undefined) this.#released[index] = [address];
    else list.push(address);
  }

  /** Takes over a run: it ends with this scope. */
  adopt(block: Block): void {
    block.index = this.#large.length;
    this.#large.push(block);
  }

  /** Lets a run go to another owner. */
  abandon(block: Block): void {
    const last = this.#large.pop()!;
    if (last === block) return;
    this.#large[block.index] = last;
    last.index = block.index;
  }

  /** Takes over the slabs of a scope that ends, where there is no room to copy what is kept out of them. */
  adoptSlabs(other: Arena): void {
    this.#slabs.unshift(...other.#slabs.splice(0));
  }

  /** The slab that an address lies in. */
  slabOf(address: number): Block {
    return this.#slabs.find((slab) => address >= slab.address && address < slab.address + slab.bytes)!;
  }

  /** Gives every run back but slabs that have users of their own; the arena can serve another scope afterwards. */
  reset(): void {
    for (const slab of this.#slabs) if (slab.users === 0) this.#idle.give(slab);
    for (const block of this.#large) this.#idle.give(block);
    this.#slabs.length = 0;
    this.#large.length = 0;
    this.#at = 0;
    this.#end = 0;
    for (const list of this.#released) if (list !== undefined) list.length = 0;
  }

  #nextSlab(bytes: number): boolean {
    for (let step = Math.min(this.#slabs.length, slabBytes.length - 1); step < slabBytes.length; step++) {
      if (slabBytes[step]! < bytes) continue;
      const slab = this.#idle.take(slabBytes[step]!);
      if (slab === undefined) return false;
      this.#slabs.push(slab);
      this.#at = slab.address;
      this.#end = slab.address + slab.bytes;
      return true;
    }
    return false;
  }
}
