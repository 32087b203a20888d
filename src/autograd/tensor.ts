import type { Device, Storage } from "../device/device.ts";
import { DtypeError, ShapeError } from "../errors.ts";
import { allocateArray, type DType, isDType, type TypedArray } from "../tensor/dtype.ts";
import type { Node } from "./tape.ts";

/** Named tensors, as ops take and return them. */
export type Tensors = Readonly<Record<string, Tensor | undefined>>;

/** Where the values of a tensor lie: a storage, the first element, and the step of each axis in elements. */
export interface Layout {
  readonly storage: Storage;
  readonly offset: number;
  readonly strides: readonly number[];
}

/**
 * An array of numbers with a shape on a device, and its place in the record of how it was computed.
 *
 * A tensor allocated inside `scope` ends with it; outside, it lives until `dispose()` (or until it is collected).
 * Views share their storage: ending one ends all.
 */
export class Tensor implements Disposable {
  readonly shape: readonly number[];
  readonly size: number;
  readonly layout: Layout;
  /** Whether gradients flow to this tensor: set on leaves by the user, on results by the tape. */
  requiresGrad: boolean;
  /** The sum of the gradients that `backward` brought to this leaf since it was last cleared. */
  grad: Tensor | undefined;
  /** How it was computed; undefined for leaves. */
  node: Node | undefined;
  /** Memory of a cleared gradient, for the next one. */
  private spare: Tensor | undefined;

  constructor(layout: Layout, shape: readonly number[], requiresGrad = false) {
    this.layout = layout;
    this.shape = shape;
    let size = 1;
    for (const length of shape) size *= length;
    this.size = size;
    this.requiresGrad = requiresGrad;
    this.grad = undefined;
    this.node = undefined;
    this.spare = undefined;
  }

  get device(): Device {
    return this.layout.storage.device;
  }

  get dtype(): DType {
    return this.layout.storage.dtype;
  }

  get rank(): number {
    return this.shape.length;
  }

  /** Whether the elements lie in row-major order without gaps. */
  get isContiguous(): boolean {
    let expected = 1;
    for (let axis = this.shape.length - 1; axis >= 0; axis--) {
      if (this.shape[axis] !== 1 && this.layout.strides[axis] !== expected) return false;
      expected *= this.shape[axis]!;
    }
    return true;
  }

  /** The values in row-major order. */
  async data(): Promise<TypedArray> {
    const span = this.span();
    if (span === 0) return allocateArray(this.dtype, 0);
    return this.gather(await this.device.read(this.layout, span));
  }

  /** The values in row-major order, on devices that can read without waiting. */
  dataSync(): TypedArray {
    const span = this.span();
    if (span === 0) return allocateArray(this.dtype, 0);
    return this.gather(this.device.readSync(this.layout, span));
  }

  /** The only value of a tensor of size 1. */
  async item(): Promise<number> {
    if (this.size !== 1) {
      throw new ShapeError(`[item] a tensor of size 1 is expected, got shape [${this.shape.join(", ")}]`);
    }
    return (await this.data())[0]!;
  }

  /** The same values without their history. */
  detach(): Tensor {
    return new Tensor(this.layout, this.shape);
  }

  /** Forgets the gradient; the next one takes over its memory. */
  clearGrad(): void {
    this.spare = this.grad ?? this.spare;
    this.grad = undefined;
  }

  /** An unwritten gradient that lives as long as this leaf; the caller fills it. */
  openGrad(): Tensor {
    const { storage } = this.layout;
    const isUsable = this.spare?.layout.storage.alive ?? false;
    this.grad = isUsable
      ? this.spare!
      : empty(this.device, this.shape, { dtype: this.dtype, persistent: storage.persistent });
    this.spare = undefined;
    return this.grad;
  }

  /** Ends the storage now instead of at the end of its scope. Views of it end too. */
  dispose(): void {
    this.device.release(this.layout.storage);
    this.grad?.dispose();
    this.spare?.dispose();
    this.grad = undefined;
    this.spare = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  /** Elements from the first to one past the last in storage order. */
  private span(): number {
    if (this.size === 0) return 0;
    let last = 0;
    for (let axis = 0; axis < this.shape.length; axis++)
      last += (this.shape[axis]! - 1) * this.layout.strides[axis]!;
    return last + 1;
  }

  private gather(values: TypedArray): TypedArray {
    if (this.isContiguous) return values;
    const result = allocateArray(this.dtype, this.size);
    const index = new Array<number>(this.shape.length).fill(0);
    let from = 0;
    for (let i = 0; i < this.size; i++) {
      result[i] = values[from]!;
      for (let axis = this.shape.length - 1; axis >= 0; axis--) {
        from += this.layout.strides[axis]!;
        if (++index[axis]! < this.shape[axis]!) break;
        from -= index[axis]! * this.layout.strides[axis]!;
        index[axis] = 0;
      }
    }
    return result;
  }
}

/** Row-major steps for a shape. */
export function contiguousStrides(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length);
  let step = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = step;
    step *= shape[axis]!;
  }
  return strides;
}

/** What a new tensor may say beyond its values. */
export interface TensorOptions {
  readonly dtype?: DType;
  readonly requiresGrad?: boolean;
  /** Lives until disposed even when created inside a scope: weights, optimizer state. */
  readonly persistent?: boolean;
}

function elementsOf(shape: readonly number[]): number {
  let size = 1;
  for (const length of shape) size *= length;
  if (
    !Number.isSafeInteger(size) ||
    size < 0 ||
    shape.some((length) => !Number.isInteger(length) || length < 0)
  ) {
    throw new ShapeError(`[tensor] a shape holds whole numbers >= 0, got [${shape.join(", ")}]`);
  }
  return size;
}

function dtypeFor(device: Device, { dtype }: TensorOptions): DType {
  if (dtype === undefined) return device.defaultDtype;
  if (isDType(dtype)) return dtype;
  throw new DtypeError(
    `[tensor] tensors hold a few dtypes: expected float32, float64, int32 or uint8, got ${dtype}`,
    "float16 and bfloat16 are formats of files: numbers are converted where they are read or written",
  );
}

/** A tensor whose elements have not been written; for results that a kernel fills. */
export function empty(device: Device, shape: readonly number[], options: TensorOptions = {}): Tensor {
  const dtype = dtypeFor(device, options);
  const size = elementsOf(shape);
  const storage = options.persistent ? device.allocatePersistent(dtype, size) : device.allocate(dtype, size);
  const layout = { storage, offset: 0, strides: contiguousStrides(shape) };
  return new Tensor(layout, shape, options.requiresGrad ?? false);
}

/**
 * A tensor with the given values in row-major order.
 *
 * Numbers are rounded to the dtype; the default is the device's.
 *
 * @throws ShapeError when the shape does not hold as many elements as there are values.
 * @example
 * const device = hostDevice({ dtype: "float64" });
 * const x = tensor(device, [1, 2, 3, 4], [2, 2]);
 */
export function tensor(
  device: Device,
  values: ArrayLike<number>,
  shape: readonly number[] = [values.length],
  options: TensorOptions = {},
): Tensor {
  const size = elementsOf(shape);
  if (size !== values.length) {
    throw new ShapeError(
      `[tensor] values and shape disagree: shape [${shape.join(", ")}] holds ${size} elements, got ${values.length}`,
    );
  }
  // Before anything is allocated: what is refused leaves nothing behind.
  const numbers = toDtype(values, dtypeFor(device, options));
  const result = empty(device, shape, options);
  device.write(result.layout, numbers);
  return result;
}

function toDtype(values: ArrayLike<number>, dtype: DType): TypedArray {
  if (dtype === "float32" && values instanceof Float32Array) return values;
  if (dtype === "float64" && values instanceof Float64Array) return values;
  if (dtype === "int32" && values instanceof Int32Array) return values;
  if (dtype === "uint8" && values instanceof Uint8Array) return values;
  if (dtype === "int32" || dtype === "uint8") {
    const [lowest, highest] = dtype === "int32" ? [-(2 ** 31), 2 ** 31 - 1] : [0, 255];
    for (let i = 0; i < values.length; i++) {
      const value = values[i]!;
      if (!(Number.isInteger(value) && value >= lowest && value <= highest)) {
        throw new DtypeError(
          `[tensor] ${dtype} holds whole numbers: expected ${lowest} to ${highest}, got ${value} at ${i}`,
        );
      }
    }
  }
  const array = allocateArray(dtype, values.length);
  array.set(values);
  return array;
}

/** A tensor of one value everywhere. */
export function full(
  device: Device,
  shape: readonly number[],
  value: number,
  options: TensorOptions = {},
): Tensor {
  const result = empty(device, shape, options);
  if (result.size > 0) device.write(result.layout, allocateArray(result.dtype, result.size).fill(value));
  return result;
}

/** A tensor of zeros. */
export function zeros(device: Device, shape: readonly number[], options: TensorOptions = {}): Tensor {
  return full(device, shape, 0, options);
}
