import { DeviceError, DisposedError, DtypeError, ShapeError } from "../errors.ts";
import type { TypedArray } from "../tensor/dtype.ts";
import { bytesPerElement, dtypeOf } from "../tensor/dtype.ts";
import type { Device, Slice, Storage } from "./device.ts";

/** How a storage came to its end; undefined while it lives. */
export type Ending = "scope" | "released" | "closed";

const endings: Record<Ending, string> = {
  scope: "its scope ended",
  released: "it was released",
  closed: "its device was closed",
};

const hints: Record<Ending, string> = {
  scope: "Return it from the scope, or keep it, to use it afterwards",
  released: "Dispose of it after its last use",
  closed: "Close the device after the last use of its tensors",
};

/** The error for a storage used after its end: says which end it was. */
export function disposedError(who: string, storage: Storage, ending: Ending): DisposedError {
  const what = `storage of ${storage.length} ${storage.dtype}`;
  return new DisposedError(
    `[${who}] use after the end: expected a living ${what}, got one that is gone because ${endings[ending]}`,
    hints[ending],
  );
}

/** The error for any use of a device after `close()`. */
export function closedError(who: string, kind: string): DisposedError {
  return new DisposedError(
    `[${who}] the device is closed: expected an open ${kind} device, got a closed one`,
  );
}

/** The error for a storage that lives on another device. */
export function foreignError(who: string, device: Device, storage: Storage): DeviceError {
  const other = storage.device.kind === device.kind ? `another ${device.kind} device` : storage.device.kind;
  return new DeviceError(
    `[${who}] storage of another device: expected one of this ${device.kind} device, got one of ${other}`,
    "Read the values on the other device and write them here",
  );
}

/** A length that an allocation can have: a whole number from zero up. */
export function checkLength(who: string, length: number): void {
  if (Number.isSafeInteger(length) && length >= 0) return;
  throw new ShapeError(`[${who}] bad length: expected a whole number of elements >= 0, got ${length}`);
}

/** The run of `length` elements from `slice.offset` must lie inside its storage. */
export function checkRange(who: string, slice: Slice, length: number): void {
  const { storage, offset } = slice;
  if (Number.isSafeInteger(offset) && Number.isSafeInteger(length) && offset >= 0 && length >= 0) {
    if (offset + length <= storage.length) return;
  }
  throw new ShapeError(
    `[${who}] range outside the storage: expected offset + length within ${storage.length} elements, ` +
      `got ${offset} + ${length}`,
  );
}

/** Values written to a storage must have its dtype: nothing converts on the way. */
export function checkDtype(who: string, storage: Storage, values: TypedArray): void {
  const dtype = dtypeOf(values);
  if (dtype === storage.dtype) return;
  throw new DtypeError(`[${who}] values of another dtype: expected ${storage.dtype}, got ${dtype}`);
}

/** Fills floats with NaN and integers with a value far outside any index: reads of unwritten memory show. */
export function poison(array: TypedArray): void {
  array.fill(array instanceof Float32Array || array instanceof Float64Array ? Number.NaN : 0x7f7f7f7f);
}

/** Bytes of a run of elements. */
export function byteLength(storage: { readonly dtype: Storage["dtype"]; readonly length: number }): number {
  return bytesPerElement(storage.dtype) * storage.length;
}
