import { DtypeError, UnsupportedError } from "../../errors.ts";
import type { DType, TypedArray } from "../../tensor/dtype.ts";
import { allocateArray } from "../../tensor/dtype.ts";
import type { Device, DeviceInfo, Dispatch, Kernel, Recording, Scope, Slice, Storage } from "../device.ts";
import {
  checkDtype,
  checkLength,
  checkRange,
  closedError,
  disposedError,
  foreignError,
} from "../lifetime.ts";
import type { Engine } from "./executor.ts";
import { Executor } from "./executor.ts";
import { Recorder } from "./recorder.ts";
import { WasmScope, WasmStorage } from "./storage.ts";
import type { Store } from "./store.ts";
import { viewOf } from "./store.ts";
import type { Tier } from "./tiers.ts";

/** The default device: one linear memory, SIMD kernels, a pool of threads. Made by `openWasm`. */
export class WasmDevice implements Device {
  readonly kind = "wasm";
  readonly defaultDtype = "float32";
  readonly #tier: Tier;
  readonly #notes: readonly string[];
  /** Undefined once closed: nothing then holds the memory any more. */
  #store: Store | undefined;
  #executor: Executor | undefined;
  #last: DeviceInfo | undefined;
  /** What is noting the work down at this moment. */
  #recorder: Recorder | undefined;

  constructor(engine: Engine, tier: Tier, notes: readonly string[]) {
    this.#tier = tier;
    this.#notes = notes;
    this.#store = engine.store;
    this.#executor = new Executor(engine, this, (who, storage) => this.#unusable(who, storage));
  }

  holds(dtype: DType): boolean {
    return dtype !== "float64";
  }

  allocate(dtype: DType, length: number): Storage {
    if (this.#recorder === undefined) {
      return this.#create("device.allocate", dtype, length, this.#store?.innermost());
    }
    return this.#recorder.own(this.#create("device.allocate", dtype, length, undefined));
  }

  allocatePersistent(dtype: DType, length: number): Storage {
    this.#recorder?.spoil();
    return this.#create("device.allocatePersistent", dtype, length, undefined);
  }

  #create(who: string, dtype: DType, length: number, scope: WasmScope | undefined): WasmStorage {
    const store = this.#store;
    if (store === undefined) throw closedError(who, this.kind);
    if (dtype === "float64") {
      throw new DtypeError(
        `[${who}] dtype that this device has no kernels for: expected float32, int32 or uint8, got float64`,
        'Compute in float64 on hostDevice({ dtype: "float64" })',
      );
    }
    checkLength(who, length);
    const storage = new WasmStorage(this, dtype, length, scope ?? store.persistentLife);
    store.place(who, storage, scope);
    return storage;
  }

  release(storage: Storage): void {
    if (!(storage instanceof WasmStorage) || storage.device !== this) {
      throw foreignError("device.release", this, storage);
    }
    if (this.#recorder?.owns(storage)) return;
    this.#recorder?.spoil();
    this.#store?.release(storage);
  }

  enter(): Scope {
    const store = this.#store;
    if (store === undefined) throw closedError("device.enter", this.kind);
    const scope = new WasmScope(this, store.innermost());
    store.enter(scope);
    return scope;
  }

  /** Ends a scope of this device; `Scope.exit` calls it. */
  exit(scope: WasmScope, keep: readonly Storage[]): void {
    // What is kept may be copied.
    if (keep.length > 0) this.#executor?.settleQuietly();
    this.#store?.exit(scope, keep);
  }

  has(kernel: Kernel): boolean {
    return this.#executor?.keys.has(kernel.key) ?? false;
  }

  run(dispatch: Dispatch): void {
    const executor = this.#executor;
    if (executor === undefined) throw closedError(dispatch.kernel.key, this.kind);
    if (executor.run(dispatch)) {
      this.#recorder?.noteRun(dispatch);
      return;
    }
    const { key } = dispatch.kernel;
    throw new UnsupportedError(
      `[${key}] no such kernel on this device: expected one of its ${executor.keys.size}, got "${key}"`,
      "Ask device.has(kernel) first, or run it on the host device",
    );
  }

  record<Result>(fn: () => Result): { readonly result: Result; readonly recording: Recording } {
    const store = this.#store;
    const executor = this.#executor;
    if (store === undefined || executor === undefined) throw closedError("device.record", this.kind);
    if (this.#recorder !== undefined) throw new UnsupportedError("[device.record] recordings do not nest");
    const recorder = new Recorder(this, store, executor);
    this.#recorder = recorder;
    try {
      return { result: fn(), recording: recorder };
    } catch (error) {
      recorder.dispose();
      throw error;
    } finally {
      this.#recorder = undefined;
    }
  }

  settle(): void {
    if (this.#executor === undefined) throw closedError("device.settle", this.kind);
    this.#executor.settle();
  }

  write(target: Slice, values: TypedArray): void {
    const { store, storage } = this.#own("device.write", target.storage);
    checkDtype("device.write", storage, values);
    checkRange("device.write", target, values.length);
    this.#executor!.settle();
    viewOf(storage, store.buffer, target.offset, values.length).set(values);
    this.#recorder?.noteWrite(target, values);
  }

  view(target: Slice, length: number): TypedArray | undefined {
    const { store, storage } = this.#own("device.view", target.storage);
    checkRange("device.view", target, length);
    this.#executor!.settle();
    // Memory of one thread moves when it grows, and a view of it would end.
    return store.buffer instanceof ArrayBuffer
      ? undefined
      : viewOf(storage, store.buffer, target.offset, length);
  }

  async read(source: Slice, length: number): Promise<TypedArray> {
    return this.readSync(source, length);
  }

  readSync(source: Slice, length: number): TypedArray {
    this.#recorder?.spoil();
    const { store, storage } = this.#own("device.read", source.storage);
    checkRange("device.read", source, length);
    this.#executor!.settle();
    // Not slice(): copying out of shared memory that way runs at a tenth of the speed.
    const values = allocateArray(storage.dtype, length);
    values.set(viewOf(storage, store.buffer, source.offset, length));
    return values;
  }

  #own(who: string, storage: Storage): { store: Store; storage: WasmStorage } {
    const store = this.#store;
    const own = storage as WasmStorage;
    if (store === undefined || own.device !== this || !own.life.open) throw this.#unusable(who, storage);
    return { store, storage: own };
  }

  #unusable(who: string, storage: Storage): Error {
    if (!(storage instanceof WasmStorage) || storage.device !== this) return foreignError(who, this, storage);
    return disposedError(who, storage, storage.life.ending);
  }

  info(): DeviceInfo {
    const store = this.#store;
    if (store === undefined) return this.#last!;
    const { pool, dispatches } = this.#executor!;
    const alone = pool === undefined || pool.failed !== undefined || pool.lost !== undefined;
    const notes = [...this.#notes];
    if (pool?.failed !== undefined) notes.push(`one thread: the others could not start: ${pool.failed}`);
    if (pool?.lost !== undefined) notes.push(`no more shared jobs: ${pool.lost}`);
    return {
      kind: this.kind,
      tier: this.#tier,
      threads: alone ? 1 : pool.threads,
      bytes: {
        persistent: store.persistentBytes,
        scoped: store.scopedBytes,
        peak: store.heap.peak,
        reserved: store.buffer.byteLength,
        limit: store.limit,
      },
      dispatches,
      allocations: store.heap.takes,
      notes,
    };
  }

  close(): void {
    const store = this.#store;
    if (store === undefined) return;
    const bytes = { persistent: 0, scoped: 0, peak: store.heap.peak, reserved: 0, limit: store.limit };
    this.#last = { ...this.info(), threads: 0, bytes, notes: ["this device is closed"] };
    this.#executor?.pool?.close();
    store.close();
    this.#store = undefined;
    this.#executor = undefined;
  }
}
