import { UnsupportedError } from "../../errors.ts";
import type { TypedArray } from "../../tensor/dtype.ts";
import type { Dispatch, Recording, Slice } from "../device.ts";
import { closedError, disposedError } from "../lifetime.ts";
import type { Executor, PreparedJob } from "./executor.ts";
import { wordsOf } from "./executor.ts";
import type { Block } from "./heap.ts";
import type { WasmStorage } from "./storage.ts";
import type { Store } from "./store.ts";
import { viewOf } from "./store.ts";
import type { WasmDevice } from "./wasm.ts";

/** Values written between jobs. */
interface Write {
  readonly storage: WasmStorage;
  readonly offset: number;
  readonly values: TypedArray;
}

type Step = PreparedJob | Write;

/**
 * Notes jobs down while they are done. Their arguments are written once, to a run of their own, so that doing them again
 * is a call of a kernel each.
 */
export class Recorder implements Recording {
  readonly #device: WasmDevice;
  readonly #store: Store;
  readonly #executor: Executor;
  readonly #noted: (Dispatch | Write)[] = [];
  readonly #owned = new Set<WasmStorage>();
  /** Every operand: held, so that none is collected, and asked whether it still lives. */
  #operands: readonly WasmStorage[] = [];
  #steps: readonly Step[] | undefined;
  #arguments: Block | undefined;
  #isSpoiled = false;
  #isDisposed = false;

  constructor(device: WasmDevice, store: Store, executor: Executor) {
    this.#device = device;
    this.#store = store;
    this.#executor = executor;
  }

  get repeatable(): boolean {
    return !this.#isSpoiled && !this.#isDisposed;
  }

  /** Takes over what was allocated: it lives as long as the recording. */
  own(storage: WasmStorage): WasmStorage {
    this.#owned.add(storage);
    return storage;
  }

  owns(storage: WasmStorage): boolean {
    return this.#owned.has(storage);
  }

  /** Something happened that cannot be done again. */
  spoil(): void {
    this.#isSpoiled = true;
  }

  noteRun(dispatch: Dispatch): void {
    if (this.#isSpoiled) return;
    // What lives in a scope is gone, or elsewhere, when it is done again.
    if (dispatch.buffers.some(({ storage }) => !storage.persistent)) this.spoil();
    else this.#noted.push(dispatch);
  }

  noteWrite(target: Slice, values: TypedArray): void {
    if (this.#isSpoiled) return;
    if (!target.storage.persistent) this.spoil();
    const { offset } = target;
    this.#noted.push({ storage: target.storage as WasmStorage, offset, values: values.slice() });
  }

  replay(): void {
    if (!this.repeatable) {
      throw new UnsupportedError(
        "[device.replay] this cannot be done again: expected a repeatable recording, got one that is not",
        "Ask recording.repeatable first.",
      );
    }
    if (!this.#store.persistentLife.open) throw closedError("device.replay", this.#device.kind);
    this.#executor.settle();
    this.#steps ??= this.#prepare();
    for (const storage of this.#operands) {
      if (!storage.life.open) throw disposedError("device.replay", storage, storage.life.ending);
    }
    for (const step of this.#steps) {
      if ("entry" in step) this.#executor.runPrepared(step);
      else {
        const { storage, offset, values } = step;
        viewOf(storage, this.#store.buffer, offset, values.length).set(values);
      }
    }
  }

  #prepare(): Step[] {
    const operands = new Set<WasmStorage>();
    let words = 0;
    for (const note of this.#noted) {
      if ("storage" in note) operands.add(note.storage);
      else {
        words += wordsOf(note);
        for (const { storage } of note.buffers) operands.add(storage as WasmStorage);
      }
    }
    this.#operands = [...operands];
    this.#arguments = this.#store.takeRun("device.record", Math.max(4, 4 * words));
    let at = this.#arguments.address;
    return this.#noted.splice(0).map((note) => {
      if ("storage" in note) return note;
      const job = this.#executor.prepare(note, at);
      at += 4 * wordsOf(note);
      return job;
    });
  }

  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.#noted.length = 0;
    this.#steps = undefined;
    this.#operands = [];
    if (!this.#store.persistentLife.open) return;
    if (this.#arguments !== undefined) this.#store.heap.give(this.#arguments);
    for (const storage of this.#owned) this.#store.release(storage);
    this.#owned.clear();
  }
}
