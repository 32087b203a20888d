import { copyInto } from "../autograd/move.ts";
import { full, Tensor, tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { ConfigError, DisposedError } from "../errors.ts";
import type { Layer, LayerState, StateSpec, StepPlaces } from "../mechanisms/layer.ts";
import { allocateArray } from "../tensor/dtype.ts";

type Parts = Record<string, Tensor>;

/** Sequences that slabs have room for, and tokens of each where they grow. */
interface SlabSize {
  readonly slots: number;
  readonly capacity: number;
}

/** The states of one layer for one call; it notes whether anybody asked how long the sequences are. */
class LayerView implements LayerState {
  readonly parts: Parts;
  readonly slots: Tensor;
  readonly places?: StepPlaces;
  readonly #seen: readonly number[];
  readonly #onRead: () => void;

  constructor(
    parts: Parts,
    { slots, places }: Pick<LayerState, "slots" | "places">,
    seen: readonly number[],
    onRead: () => void,
  ) {
    this.parts = parts;
    this.slots = slots;
    if (places !== undefined) this.places = places;
    this.#seen = seen;
    this.#onRead = onRead;
  }

  get seen(): readonly number[] {
    this.#onRead();
    return this.#seen;
  }
}

/**
 * The carried state of many sequences: every part of every layer is one slab `[slots, ...]`, and a sequence owns a
 * slot of each. Parts that grow with the context have room for `capacity` tokens and are moved when it is used up.
 */
export class ModelState {
  private count: number;
  private readonly device: Device;
  private readonly specs: readonly Readonly<Record<string, StateSpec>>[];
  private readonly layers: Parts[];
  private readonly seen: number[];
  private capacity: number;
  private disposed = false;
  private readonly onRead = (): void => {
    this.lengthReads++;
  };
  /** How often anybody asked for the lengths of sequences: a call that did not ask does not depend on them. */
  lengthReads = 0;
  /** Rises whenever parts move to other memory. */
  version = 0;

  constructor(device: Device, layers: readonly Layer[], slots: number, capacity = 64) {
    this.device = device;
    this.count = slots;
    this.specs = layers.map((layer) => layer.stateSpec);
    this.capacity = capacity;
    this.seen = new Array<number>(slots).fill(0);
    const size = { slots, capacity };
    this.layers = this.specs.map((parts) =>
      Object.fromEntries(Object.entries(parts).map(([name, spec]) => [name, this.slab(spec, size)])),
    );
  }

  /** Sequences there is room for. */
  get slots(): number {
    return this.count;
  }

  /** Makes room for more sequences; the ones there stay where they are. Without the memory for it nothing changes. */
  addSlots(count: number): void {
    const before = this.count;
    this.replace(
      { slots: before + count, capacity: this.capacity },
      () => true,
      (fresh, old) => copyInto(headOf(fresh, before), old),
    );
    for (let i = 0; i < count; i++) this.seen.push(0);
  }

  /** Bytes of one sequence that do not depend on its length. */
  get bytesPerSequence(): number {
    return this.sum((spec) => (spec.cache ? 0 : product(spec.shape)));
  }

  /** Bytes that every token of one sequence adds; 0 for models without caches. */
  get bytesPerToken(): number {
    return this.sum((spec) => (spec.cache ? product(spec.shape.slice(1)) : 0));
  }

  /** Tokens that the sequence of a slot has seen. */
  tokens(slot: number): number {
    return this.seen[slot]!;
  }

  /**
   * The states that rows of a batch read and write: row b belongs to `slots[b]`. Makes room for `length` more tokens.
   *
   * @param rows The slots as a tensor, where there is one already.
   * @param places Where the tokens go, where that is on the device and length is 1.
   * @throws ConfigError for a slot that is not there or is named twice.
   */
  view(
    slots: readonly number[],
    length: number,
    { rows, places }: { readonly rows?: Tensor; readonly places?: StepPlaces } = {},
  ): readonly LayerState[] {
    this.check(slots);
    this.makeRoom(slots, length);
    const own = rows ?? tensor(this.device, Int32Array.from(slots), [slots.length], { dtype: "int32" });
    const seen = slots.map((slot) => this.seen[slot]!);
    const shared = places === undefined ? { slots: own } : { slots: own, places };
    return this.layers.map((parts) => new LayerView(parts, shared, seen, this.onRead));
  }

  /** Makes room for `length` more tokens of every one of these slots. */
  makeRoom(slots: readonly number[], length: number): void {
    const longest = slots.reduce((most, slot) => Math.max(most, this.seen[slot]!), 0) + length;
    if (longest > this.capacity) this.grow(Math.max(longest, 2 * this.capacity));
  }

  /** Tokens of a sequence beyond which parts move to other memory. */
  get room(): number {
    return this.bytesPerToken > 0 ? this.capacity : Number.POSITIVE_INFINITY;
  }

  /** Where parts that grow take the next token of a slot, with slots and tokens as one axis. */
  entryOf(slot: number): number {
    return slot * this.capacity + this.seen[slot]!;
  }

  /**
   * Throws where rows cannot have these slots.
   *
   * @throws ConfigError for a slot that is not there or is named twice; DisposedError after `dispose`.
   */
  check(slots: readonly number[]): void {
    if (this.disposed) throw new DisposedError("[state] the state was disposed");
    const isKnown = (slot: number): boolean => slot >= 0 && slot < this.count;
    if (slots.every(isKnown) && (slots.length === 1 || new Set(slots).size === slots.length)) return;
    throw new ConfigError(
      `[state] rows name different slots from 0 to ${this.count - 1}, got ${slots.join(", ")}`,
    );
  }

  /** Notes that the sequences of these slots have seen `length` more tokens, or each its own number of them. */
  advance(slots: readonly number[], length: number | readonly number[]): void {
    for (const [n, slot] of slots.entries())
      this.seen[slot]! += typeof length === "number" ? length : length[n]!;
  }

  /** Makes a slot's sequence as new. */
  reset(slot: number): void {
    this.seen[slot] = 0;
    for (const [i, parts] of this.layers.entries()) {
      for (const [name, part] of Object.entries(parts)) {
        const own = rowOf(part, slot);
        const { storage, offset } = own.layout;
        const values = allocateArray(own.dtype, own.size).fill(this.specs[i]![name]!.initial ?? 0);
        this.device.write({ storage, offset }, values);
      }
    }
  }

  /** Makes slot `to` continue from where slot `from` is. */
  copy(from: number, to: number): void {
    if (from === to) return;
    for (const parts of this.layers)
      for (const part of Object.values(parts)) copyInto(rowOf(part, to), rowOf(part, from));
    this.seen[to] = this.seen[from]!;
  }

  /** Every part of one slot by `layer.part`; caches cut to the tokens seen. */
  *partsOf(slot: number): Generator<[name: string, part: Tensor]> {
    for (const [i, parts] of this.layers.entries()) {
      for (const [name, part] of Object.entries(parts)) {
        const own = rowOf(part, slot);
        yield [`${i}.${name}`, this.specs[i]![name]!.cache ? headOf(own, this.seen[slot]!) : own];
      }
    }
  }

  /** Shapes of the parts of a slot that has seen so many tokens, by `layer.part`. */
  *shapesAt(tokens: number): Generator<[name: string, shape: readonly number[]]> {
    for (const [i, parts] of this.specs.entries())
      for (const [name, { shape, cache }] of Object.entries(parts))
        yield [`${i}.${name}`, cache ? [tokens, ...shape.slice(1)] : shape];
  }

  /** Sets the number of tokens seen, after parts were written from outside; makes room for them. */
  place(slot: number, tokens: number): void {
    if (tokens > this.capacity) this.grow(tokens);
    this.seen[slot] = tokens;
  }

  dispose(): void {
    this.disposed = true;
    for (const parts of this.layers) for (const part of Object.values(parts)) part.dispose();
  }

  private slab(spec: StateSpec, { slots, capacity }: SlabSize): Tensor {
    const shape = spec.cache ? [capacity, ...spec.shape.slice(1)] : spec.shape;
    return full(this.device, [slots, ...shape], spec.initial ?? 0, { persistent: true });
  }

  private grow(capacity: number): void {
    const before = this.capacity;
    this.replace(
      { slots: this.slots, capacity },
      (spec) => spec.cache,
      (fresh, old) => {
        for (let slot = 0; slot < this.slots; slot++)
          copyInto(headOf(rowOf(fresh, slot), before), rowOf(old, slot));
      },
    );
  }

  /** New slabs for some parts, filled from the old ones: for all of them, or for none where one finds no memory. */
  private replace(
    size: SlabSize,
    chosen: (spec: StateSpec) => boolean,
    fill: (fresh: Tensor, old: Tensor) => void,
  ): void {
    const moves: { readonly parts: Parts; readonly name: string; readonly fresh: Tensor }[] = [];
    try {
      for (const [i, parts] of this.layers.entries())
        for (const [name, spec] of Object.entries(this.specs[i]!))
          if (chosen(spec)) moves.push({ parts, name, fresh: this.slab(spec, size) });
    } catch (error) {
      for (const { fresh } of moves) fresh.dispose();
      throw error;
    }
    if (moves.length > 0) this.version++;
    this.count = size.slots;
    this.capacity = size.capacity;
    for (const { parts, name, fresh } of moves) {
      const old = parts[name]!;
      fill(fresh, old);
      old.dispose();
      parts[name] = fresh;
    }
  }

  private sum(elements: (spec: StateSpec) => number): number {
    return (
      4 *
      this.specs.reduce(
        (sum, parts) => sum + Object.values(parts).reduce((s, spec) => s + elements(spec), 0),
        0,
      )
    );
  }
}

function product(shape: readonly number[]): number {
  return shape.reduce((size, length) => size * length, 1);
}

/** Entry `index` of the first axis, as a view. */
function rowOf(x: Tensor, index: number): Tensor {
  const { storage, offset, strides } = x.layout;
  return new Tensor(
    { storage, offset: offset + index * strides[0]!, strides: strides.slice(1) },
    x.shape.slice(1),
  );
}

/** The first `length` entries of the first axis, as a view. */
function headOf(x: Tensor, length: number): Tensor {
  return new Tensor(x.layout, [length, ...x.shape.slice(1)]);
}
