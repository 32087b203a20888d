import { checkWord } from "../../errors.ts";
import type { DType, TypedArray } from "../../tensor/dtype.ts";
import { allocateArray } from "../../tensor/dtype.ts";
import type { Device, DeviceInfo, Dispatch, Kernel, Scope, Slice, Storage } from "../device.ts";
import type { Ending } from "../lifetime.ts";
import {
  byteLength,
  checkDtype,
  checkLength,
  checkRange,
  closedError,
  disposedError,
  foreignError,
  poison,
} from "../lifetime.ts";

/** Options of `hostDevice`. */
export interface HostOptions {
  /** What the device computes in and gives to tensors that do not say theirs; float64 unless given. */
  readonly dtype?: "float64" | "float32";
  /** Fill new memory with NaN (integers with 0x7f7f7f7f) so that reading what was never written shows. */
  readonly poison?: boolean;
}

/** A typed array with a life. */
class HostStorage implements Storage {
  readonly device: HostDevice;
  readonly dtype: DType;
  readonly length: number;
  array: TypedArray | undefined;
  ending: Ending | undefined;
  scope: HostScope | undefined;

  constructor(device: HostDevice, dtype: DType, length: number, scope: HostScope | undefined) {
    this.device = device;
    this.dtype = dtype;
    this.length = length;
    this.array = allocateArray(dtype, length);
    this.scope = scope;
  }

  get alive(): boolean {
    return this.array !== undefined;
  }

  get persistent(): boolean {
    return this.scope === undefined;
  }
}

class HostScope implements Scope {
  readonly device: HostDevice;
  readonly parent: HostScope | undefined;
  readonly storages = new Set<HostStorage>();
  open = true;

  constructor(device: HostDevice, parent: HostScope | undefined) {
    this.device = device;
    this.parent = parent;
  }

  exit(keep: readonly Storage[]): void {
    this.device.exit(this, keep);
  }
}

class HostDevice implements Device {
  readonly kind = "host";
  readonly defaultDtype: "float64" | "float32";
  readonly #poison: boolean;
  readonly #scopes: HostScope[] = [];
  /** Weak, so that a tensor nobody holds is collected as any array is. */
  readonly #persistent = new Set<WeakRef<HostStorage>>();
  readonly #references = new WeakMap<HostStorage, WeakRef<HostStorage>>();
  readonly #collected = new FinalizationRegistry<{ bytes: number; reference: WeakRef<HostStorage> }>(
    (held) => {
      if (this.#persistent.delete(held.reference)) this.#persistentBytes -= held.bytes;
    },
  );
  #persistentBytes = 0;
  #scopedBytes = 0;
  #peakBytes = 0;
  #dispatches = 0;
  #allocations = 0;
  #closed = false;

  constructor(options: HostOptions) {
    checkWord("hostDevice", "dtype", options.dtype, ["float64", "float32"]);
    this.defaultDtype = options.dtype ?? "float64";
    this.#poison = options.poison ?? false;
  }

  holds(_dtype: DType): boolean {
    return true;
  }

  allocate(dtype: DType, length: number): Storage {
    return this.#create("device.allocate", dtype, length, this.#scopes.at(-1));
  }

  allocatePersistent(dtype: DType, length: number): Storage {
    return this.#create("device.allocatePersistent", dtype, length, undefined);
  }

  #create(who: string, dtype: DType, length: number, scope: HostScope | undefined): Storage {
    if (this.#closed) throw closedError(who, this.kind);
    checkLength(who, length);
    const storage = new HostStorage(this, dtype, length, scope);
    if (this.#poison) poison(storage.array!);
    this.#allocations++;
    if (scope === undefined) this.#persist(storage);
    else {
      scope.storages.add(storage);
      this.#scopedBytes += byteLength(storage);
    }
    this.#peakBytes = Math.max(this.#peakBytes, this.#persistentBytes + this.#scopedBytes);
    return storage;
  }

  #persist(storage: HostStorage): void {
    const reference = new WeakRef(storage);
    const bytes = byteLength(storage);
    storage.scope = undefined;
    this.#persistent.add(reference);
    this.#references.set(storage, reference);
    this.#collected.register(storage, { bytes, reference });
    this.#persistentBytes += bytes;
  }

  release(storage: Storage): void {
    if (!(storage instanceof HostStorage) || storage.device !== this) {
      throw foreignError("device.release", this, storage);
    }
    if (storage.array === undefined) return;
    if (storage.scope === undefined) {
      this.#persistent.delete(this.#references.get(storage)!);
      this.#persistentBytes -= byteLength(storage);
    } else {
      storage.scope.storages.delete(storage);
      this.#scopedBytes -= byteLength(storage);
    }
    end(storage, "released");
  }

  enter(): Scope {
    if (this.#closed) throw closedError("device.enter", this.kind);
    const scope = new HostScope(this, this.#scopes.at(-1));
    this.#scopes.push(scope);
    return scope;
  }

  exit(scope: HostScope, keep: readonly Storage[]): void {
    if (!scope.open) return;
    scope.open = false;
    this.#scopes.splice(this.#scopes.lastIndexOf(scope), 1);
    let target = scope.parent;
    while (target !== undefined && !target.open) target = target.parent;
    for (const storage of keep) {
      if (!(storage instanceof HostStorage) || storage.scope !== scope || !storage.alive) continue;
      scope.storages.delete(storage);
      if (target !== undefined) {
        target.storages.add(storage);
        storage.scope = target;
      } else {
        this.#scopedBytes -= byteLength(storage);
        this.#persist(storage);
      }
    }
    for (const storage of scope.storages) {
      this.#scopedBytes -= byteLength(storage);
      end(storage, "scope");
    }
    scope.storages.clear();
  }

  has(_kernel: Kernel): boolean {
    return true;
  }

  run(dispatch: Dispatch): void {
    const { kernel, buffers, ints, floats } = dispatch;
    const arrays = buffers.map((slice) => {
      const array = this.#array(kernel.key, slice.storage);
      checkRange(kernel.key, slice, 0);
      return array.subarray(slice.offset);
    });
    this.#dispatches++;
    kernel.host(arrays, ints, floats);
  }

  /** Nothing ever waits here. */
  settle(): void {}

  write(target: Slice, values: TypedArray): void {
    const array = this.#array("device.write", target.storage);
    checkDtype("device.write", target.storage, values);
    checkRange("device.write", target, values.length);
    array.set(values, target.offset);
  }

  async read(source: Slice, length: number): Promise<TypedArray> {
    return this.readSync(source, length);
  }

  readSync(source: Slice, length: number): TypedArray {
    const array = this.#array("device.read", source.storage);
    checkRange("device.read", source, length);
    return array.slice(source.offset, source.offset + length);
  }

  #array(who: string, storage: Storage): TypedArray {
    if (!(storage instanceof HostStorage) || storage.device !== this) throw foreignError(who, this, storage);
    if (storage.array === undefined) throw disposedError(who, storage, storage.ending ?? "released");
    return storage.array;
  }

  info(): DeviceInfo {
    const persistent = this.#persistentBytes;
    const scoped = this.#scopedBytes;
    return {
      kind: this.kind,
      tier: undefined,
      threads: 1,
      bytes: {
        persistent,
        scoped,
        peak: this.#peakBytes,
        reserved: persistent + scoped,
        limit: Number.POSITIVE_INFINITY,
      },
      dispatches: this.#dispatches,
      allocations: this.#allocations,
      notes: ["the host device runs plain loops: it is there to check the others, not to be fast"],
    };
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const scope of this.#scopes.splice(0)) {
      scope.open = false;
      for (const storage of scope.storages) end(storage, "closed");
    }
    for (const reference of this.#persistent) {
      const storage = reference.deref();
      if (storage !== undefined) end(storage, "closed");
    }
    this.#persistent.clear();
    this.#persistentBytes = 0;
    this.#scopedBytes = 0;
  }
}

function end(storage: HostStorage, ending: Ending): void {
  storage.array = undefined;
  storage.ending = ending;
}

/**
 * A device of plain loops over typed arrays: slow, exact to read, there to check the others against.
 *
 * @param options `dtype` float64 (the default) or float32; `poison` fills new memory with NaN.
 * @returns A device that runs every kernel's `host` loops; memory is the JavaScript heap.
 * @example
 * const device = hostDevice({ dtype: "float64" });
 * const storage = device.allocate("float64", 3);
 * device.write({ storage, offset: 0 }, Float64Array.of(1, 2, 3));
 */
export function hostDevice(options: HostOptions = {}): Device {
  return new HostDevice(options);
}
