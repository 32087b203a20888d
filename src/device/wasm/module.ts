import { DeviceError } from "../../errors.ts";

/** What the compiled modules export besides the kernels. */
export interface Runtime {
  readonly heapBase: WebAssembly.Global;
  readonly table: WebAssembly.Table;
  call(kernel: number, args: number, begin: number, end: number, scratch: number): void;
  dispatch(
    control: number,
    kernel: number,
    args: number,
    units: number,
    shares: number,
    patience: number,
  ): number;
  finish(control: number, patience: number): number;
  spin(control: number, turns: number): void;
  copy(to: number, from: number, bytes: number): void;
}

/** A kernel as an instance exports it. */
export type KernelFunction = (args: number, begin: number, end: number, scratch: number) => void;

/** One module on one memory: its runtime, its kernels and where in the table they begin. */
export interface Instance {
  readonly runtime: Runtime;
  readonly exports: WebAssembly.Exports;
  readonly firstKernel: number;
}

/** The bytes behind base64 text, in every JavaScript. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Instantiates and puts the kernels into the table in the order of their names, the same in every thread. */
export function instantiate(
  module: WebAssembly.Module,
  memory: WebAssembly.Memory,
  names: readonly string[],
): Instance {
  const env = { memory, abort: () => {} };
  const { exports } = new WebAssembly.Instance(module, { env });
  const runtime = exports as unknown as Runtime;
  const firstKernel = runtime.table.grow(names.length);
  for (const [i, name] of names.entries()) runtime.table.set(firstKernel + i, exports[name]);
  return { runtime, exports, firstKernel };
}

/**
 * A module compiled for shared memory refuses memory that is not: the flag sits in one byte of its import section.
 * This is a copy with that byte changed, for pages that get no shared memory.
 */
export function withUnsharedMemory(binary: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const bytes = binary.slice();
  const at = memoryFlags(bytes);
  const sharedWithMaximum = 3;
  if (bytes[at] !== sharedWithMaximum) {
    throw new DeviceError(`[openWasm] unknown module: expected shared memory flags 3, got ${bytes[at]}`);
  }
  bytes[at] = 1;
  return bytes;
}

/** Where the limits of the imported memory begin. */
function memoryFlags(bytes: Uint8Array): number {
  let at = 8;
  const number = (): number => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++]!;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const importSection = 2;
  while (at < bytes.length) {
    const section = bytes[at++];
    const size = number();
    if (section !== importSection) {
      at += size;
      continue;
    }
    const skipName = () => {
      const length = number();
      at += length;
    };
    for (let count = number(); count > 0; count--) {
      skipName();
      skipName();
      const kind = bytes[at++];
      if (kind === 2) return at;
      if (kind === 0) number();
      else at += 2;
    }
  }
  throw new DeviceError("[openWasm] unknown module: expected an imported memory, got none");
}
