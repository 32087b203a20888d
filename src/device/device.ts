/**
 * The waist of the house: everything above is written once against this page, every device fits behind it.
 * Work is issued in order and a dispatch sees all that earlier ones wrote. It may wait until somebody looks at values, and
 * then it is there that a kernel's fault is thrown.
 */
import type { DType, TypedArray } from "../tensor/dtype.ts";

/** A run of elements that a device holds. Only its device knows where it lies. */
export interface Storage {
  readonly device: Device;
  readonly dtype: DType;
  readonly length: number;
  /** True when no scope ends it: weights and what belongs to them. */
  readonly persistent: boolean;
  /** False after its scope ended, it was released, or its device closed; using it then is a DisposedError. */
  readonly alive: boolean;
}

/** Where in a storage a kernel's operand begins. */
export interface Slice {
  readonly storage: Storage;
  /** Elements from the beginning of the storage. */
  readonly offset: number;
}

/** Plain loops over typed arrays that do the whole job of one dispatch: the slow truth. */
export type HostKernel = (
  buffers: readonly TypedArray[],
  ints: readonly number[],
  floats: readonly number[],
) => void;

/** One kernel on every device: its key is `op.form.pass`, its host loops travel with it. */
export interface Kernel {
  readonly key: string;
  readonly host: HostKernel;
}

/** One piece of work. Operands, ints and floats arrive at the kernel in this order. */
export interface Dispatch {
  readonly kernel: Kernel;
  readonly buffers: readonly Slice[];
  readonly ints: readonly number[];
  readonly floats: readonly number[];
  /** Independent units the job may be cut into; the cut never changes a bit of the result. */
  readonly units: number;
  /** Estimated multiply-adds (or as many elements moved) of the whole job: decides whether threads are worth waking. */
  readonly work: number;
  /** Bytes of scratch memory that each thread needs. */
  readonly scratchBytes: number;
}

/** A lifetime: what is allocated while it is the innermost one ends with it, but for what is kept. */
export interface Scope {
  /** Ends the lifetime; `keep` moves to the enclosing scope, or becomes persistent where there is none. */
  exit(keep: readonly Storage[]): void;
}

/** What a device says of itself. */
export interface DeviceInfo {
  readonly kind: string;
  /** SIMD level in use, such as "b"; undefined where the device has none. */
  readonly tier: string | undefined;
  readonly threads: number;
  readonly bytes: {
    /** Held outside scopes: weights, optimizer state, sessions. */
    readonly persistent: number;
    /** Held inside scopes at this moment. */
    readonly scoped: number;
    /** Most that was taken at one time, the threads' workspace and what waits to be taken again included. */
    readonly peak: number;
    /** Reserved from the system, in use or not. */
    readonly reserved: number;
    readonly limit: number;
  };
  readonly dispatches: number;
  /** Takes of fresh memory so far: a repeated step adds none on a device that serves it from what it gave back. */
  readonly allocations: number;
  /** Why something faster is not in use, one sentence each. */
  readonly notes: readonly string[];
}

/**
 * Work that was noted down while it was done, to be done again at little more than the cost of its kernels: operands at
 * the same places, whatever they hold by then.
 */
export interface Recording {
  /** False where it cannot be done again as it is: values were read back, or persistent memory came or went. */
  readonly repeatable: boolean;
  /** Does all of it again, in order; a DisposedError where an operand has ended since. */
  replay(): void;
  /** Ends it, and all that was allocated while it was noted. */
  dispose(): void;
}

/** Holds memory and runs kernels. */
export interface Device {
  readonly kind: string;
  /** The dtype of new tensors that do not say theirs. */
  readonly defaultDtype: DType;
  /** Whether tensors of this dtype can live here. */
  holds(dtype: DType): boolean;
  /** Memory for `length` elements, unwritten, in the innermost scope or persistent where there is none. */
  allocate(dtype: DType, length: number): Storage;
  /** Memory that no scope ends: it lives until released or the device closes. */
  allocatePersistent(dtype: DType, length: number): Storage;
  /** Ends a storage before its scope does; twice is harmless. */
  release(storage: Storage): void;
  enter(): Scope;
  has(kernel: Kernel): boolean;
  run(dispatch: Dispatch): void;
  /** Resolves when all that was issued is done: for what measures time, or must hear of faults here. */
  settle(): void | Promise<void>;
  /**
   * Does `fn` and notes its work down. What `fn` allocates lives until the recording is disposed, inside scopes too.
   * Absent on devices where doing it again would save nothing.
   */
  record?<Result>(fn: () => Result): { readonly result: Result; readonly recording: Recording };
  write(target: Slice, values: TypedArray): void;
  /** The elements where they lie, for what can fill them by itself, such as a file; absent or undefined where it cannot. */
  view?(target: Slice, length: number): TypedArray | undefined;
  read(source: Slice, length: number): Promise<TypedArray>;
  /** The values at once, on devices that can; others throw an UnsupportedError that names `read`. */
  readSync(source: Slice, length: number): TypedArray;
  info(): DeviceInfo;
  /** Frees memory and threads; every storage of the device is dead afterwards. */
  close(): void;
}
