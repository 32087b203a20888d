import type { DType } from "../../tensor/dtype.ts";
import { bytesPerElement } from "../../tensor/dtype.ts";
import type { Scope, Storage } from "../device.ts";
import type { Ending } from "../lifetime.ts";
import type { Arena } from "./arena.ts";
import type { Block } from "./heap.ts";
import type { WasmDevice } from "./wasm.ts";

/** A lifetime that many storages share: when it ends, all of them have ended without being visited. */
export interface Life {
  open: boolean;
  ending: Ending;
}

/** The life of everything that was released by itself. */
export const released: Life = { open: false, ending: "released" };

/** A run of elements in the linear memory. It may move when its scope ends, so nobody keeps its address. */
export class WasmStorage implements Storage {
  readonly device: WasmDevice;
  readonly dtype: DType;
  readonly length: number;
  readonly width: number;
  address: number;
  /** The run it has for itself; undefined where it lies in a slab of its scope. */
  block: Block | undefined;
  life: Life;

  constructor(device: WasmDevice, dtype: DType, length: number, life: Life) {
    this.device = device;
    this.dtype = dtype;
    this.length = length;
    this.width = bytesPerElement(dtype);
    this.address = 0;
    this.block = undefined;
    this.life = life;
  }

  get alive(): boolean {
    return this.life.open;
  }

  get bytes(): number {
    return this.length * this.width;
  }

  get persistent(): boolean {
    return !(this.life instanceof WasmScope);
  }
}

/** A scope and the memory it took; the memory is asked for by the first allocation. */
export class WasmScope implements Scope, Life {
  readonly device: WasmDevice;
  readonly parent: WasmScope | undefined;
  open = true;
  ending: Ending = "scope";
  arena: Arena | undefined;
  /** Bytes of the storages that live in it. */
  bytes = 0;

  constructor(device: WasmDevice, parent: WasmScope | undefined) {
    this.device = device;
    this.parent = parent;
  }

  exit(keep: readonly Storage[]): void {
    this.device.exit(this, keep);
  }
}
