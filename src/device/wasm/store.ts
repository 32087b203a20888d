import { OutOfMemoryError } from "../../errors.ts";
import type { Storage } from "../device.ts";
import { poison } from "../lifetime.ts";
import type { Place } from "./arena.ts";
import { Arena, IdleRuns } from "./arena.ts";
import type { Block } from "./heap.ts";
import { Heap } from "./heap.ts";
import type { OpenedMemory } from "./memory.ts";
import { growMemory, pageBytes } from "./memory.ts";
import type { Runtime } from "./module.ts";
import type { Life } from "./storage.ts";
import { released, WasmScope, WasmStorage } from "./storage.ts";

/** Asked before memory is given out; true makes that fail as if there were none. For tests of what happens then. */
export type Refuse = (bytes: number) => boolean;

/** The memory of one device: who holds what, and for how long. */
export class Store {
  readonly heap: Heap;
  readonly #opened: OpenedMemory;
  readonly #runtime: Runtime;
  readonly #poison: boolean;
  readonly #refuse: Refuse | undefined;
  readonly #idle: IdleRuns;
  readonly #spare: Arena[] = [];
  readonly #scopes: WasmScope[] = [];
  readonly #place: Place = { address: 0, block: undefined };
  /** A persistent storage that nobody holds any more gives its memory back, though nobody released it. */
  readonly #collected = new FinalizationRegistry<{ block: Block; bytes: number }>((held) => {
    if (this.persistentLife.open) this.#freePersistent(held.block, held.bytes);
  });
  /** The life of all that no scope ends. */
  readonly persistentLife: Life = { open: true, ending: "closed" };
  persistentBytes = 0;
  scopedBytes = 0;
  words: Uint32Array<ArrayBufferLike>;
  floats: Float32Array<ArrayBufferLike>;

  constructor(
    opened: OpenedMemory,
    runtime: Runtime,
    options: { readonly poison: boolean; readonly refuse: Refuse | undefined },
  ) {
    this.#opened = opened;
    this.#runtime = runtime;
    this.#poison = options.poison;
    this.#refuse = options.refuse;
    this.words = new Uint32Array(opened.memory.buffer);
    this.floats = new Float32Array(opened.memory.buffer);
    const ground = {
      extend: (bytes: number) => {
        if (growMemory(this.#opened, this.#usable(bytes))) this.#refresh();
        return this.#end();
      },
      reclaim: () => this.#idle.trim(),
    };
    this.heap = new Heap(runtime.heapBase.value as number, this.#end(), ground);
    this.#idle = new IdleRuns(this.heap);
  }

  /** The last page stays unused where it ends at 4 GiB: the address behind it would read as zero. */
  #end(): number {
    return Math.min(this.#opened.memory.buffer.byteLength, 2 ** 32 - pageBytes);
  }

  /** Bytes to grow by so that as many can be used: none where they lie beyond the last usable page. */
  #usable(bytes: number): number {
    return this.#end() + bytes > 2 ** 32 - pageBytes ? Number.POSITIVE_INFINITY : bytes;
  }

  #refresh(): void {
    this.words = new Uint32Array(this.#opened.memory.buffer);
    this.floats = new Float32Array(this.#opened.memory.buffer);
  }

  get buffer(): ArrayBufferLike {
    return this.words.buffer;
  }

  get limit(): number {
    return this.#opened.maximumPages * pageBytes;
  }

  innermost(): WasmScope | undefined {
    return this.#scopes[this.#scopes.length - 1];
  }

  /** Gives a new storage its memory: in a scope, or persistent where none is given. */
  place(who: string, storage: WasmStorage, scope: WasmScope | undefined): void {
    const { bytes } = storage;
    if (scope === undefined) {
      const block = this.#refuse?.(bytes) ? undefined : this.heap.take(bytes);
      if (block === undefined) throw this.outOfMemory(who, bytes);
      storage.address = block.address;
      this.#persist(storage, block);
    } else {
      scope.arena ??= this.#spare.pop() ?? new Arena(this.#idle);
      const place = this.#place;
      if (this.#refuse?.(bytes) || !scope.arena.take(bytes, place)) throw this.outOfMemory(who, bytes);
      storage.address = place.address;
      storage.block = place.block;
      scope.bytes += bytes;
      this.scopedBytes += bytes;
    }
    if (this.#poison) poison(viewOf(storage, this.buffer));
  }

  #persist(storage: WasmStorage, block: Block): void {
    const { bytes } = storage;
    storage.block = block;
    storage.life = this.persistentLife;
    block.users++;
    this.persistentBytes += bytes;
    this.#collected.register(storage, { block, bytes }, storage);
  }

  #freePersistent(block: Block, bytes: number): void {
    this.persistentBytes -= bytes;
    if (--block.users === 0) this.heap.give(block);
  }

  /** Ends one storage; its memory serves the next. */
  release(storage: WasmStorage): void {
    const { life, bytes, block } = storage;
    if (!life.open) return;
    storage.life = released;
    if (life instanceof WasmScope) {
      life.bytes -= bytes;
      this.scopedBytes -= bytes;
      life.arena!.release(bytes, storage.address, block);
    } else {
      this.#collected.unregister(storage);
      this.#freePersistent(block!, bytes);
    }
    storage.block = undefined;
  }

  enter(scope: WasmScope): void {
    this.#scopes.push(scope);
  }

  /** Ends a scope: what is kept moves out, the rest is gone, its runs serve the next scope. Never fails. */
  exit(scope: WasmScope, keep: readonly Storage[]): void {
    if (!scope.open) return;
    this.#scopes.splice(this.#scopes.lastIndexOf(scope), 1);
    let target = scope.parent;
    while (target !== undefined && !target.open) target = target.parent;
    for (const storage of keep) {
      if (!(storage instanceof WasmStorage) || storage.life !== scope) continue;
      if (target === undefined) this.#keepForever(storage, scope);
      else this.#keepIn(storage, scope, target);
    }
    scope.open = false;
    this.scopedBytes -= scope.bytes;
    scope.bytes = 0;
    if (scope.arena === undefined) return;
    scope.arena.reset();
    this.#spare.push(scope.arena);
    scope.arena = undefined;
  }

  /** A run of its own changes hands; what lies in a slab is copied, or takes the slab along where there is no room. */
  #keepIn(storage: WasmStorage, scope: WasmScope, target: WasmScope): void {
    const { bytes, block } = storage;
    const from = scope.arena!;
    target.arena ??= this.#spare.pop() ?? new Arena(this.#idle);
    scope.bytes -= bytes;
    target.bytes += bytes;
    storage.life = target;
    const place = this.#place;
    if (block !== undefined) {
      from.abandon(block);
      target.arena.adopt(block);
    } else if (!this.#refuse?.(bytes) && target.arena.take(bytes, place)) {
      this.#runtime.copy(place.address, storage.address, bytes);
      storage.address = place.address;
    } else target.arena.adoptSlabs(from);
  }

  #keepForever(storage: WasmStorage, scope: WasmScope): void {
    const { bytes, block } = storage;
    scope.bytes -= bytes;
    this.scopedBytes -= bytes;
    if (block !== undefined) {
      scope.arena!.abandon(block);
      this.#persist(storage, block);
      return;
    }
    const own = this.#refuse?.(bytes) ? undefined : this.heap.take(bytes);
    if (own !== undefined) {
      this.#runtime.copy(own.address, storage.address, bytes);
      storage.address = own.address;
    }
    this.#persist(storage, own ?? scope.arena!.slabOf(storage.address));
  }

  /** A run for the device itself, such as scratch memory; filled by nobody. */
  takeRun(who: string, bytes: number): Block {
    const block = this.#refuse?.(bytes) ? undefined : this.heap.take(bytes);
    if (block === undefined) throw this.outOfMemory(who, bytes);
    return block;
  }

  outOfMemory(who: string, bytes: number): OutOfMemoryError {
    const reserved = this.buffer.byteLength;
    const there = Math.max(this.heap.longest(), this.#growable());
    return new OutOfMemoryError(
      `[${who}] out of memory: expected room for ${bytes} bytes, got at most ${there} in one piece ` +
        `(${reserved} reserved of ${this.limit}; ${this.persistentBytes} persistent, ${this.scopedBytes} in scopes)`,
      "Use smaller batches or shorter pieces, end scopes earlier, or open the device with a larger maximumBytes",
    );
  }

  #growable(): number {
    return Math.max(0, this.limit - this.buffer.byteLength);
  }

  /** Everything has ended; nothing of the memory is held any more. */
  close(): void {
    this.persistentLife.open = false;
    for (const scope of this.#scopes.splice(0)) {
      scope.open = false;
      scope.ending = "closed";
      scope.arena = undefined;
    }
    this.#spare.length = 0;
    this.persistentBytes = 0;
    this.scopedBytes = 0;
    this.words = new Uint32Array(0);
    this.floats = new Float32Array(0);
  }
}

/** The elements of a storage as they lie in memory. */
export function viewOf(storage: WasmStorage, buffer: ArrayBufferLike, offset = 0, length = storage.length) {
  const at = storage.address + offset * storage.width;
  if (storage.dtype === "float32") return new Float32Array(buffer, at, length);
  return storage.dtype === "int32" ? new Int32Array(buffer, at, length) : new Uint8Array(buffer, at, length);
}
