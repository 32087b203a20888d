/** Values for the inputs of a case: the same on every device, float32 numbers where the device has floats. */
import { Tensor, tensor } from "../../src/autograd/tensor.ts";
import type { Device } from "../../src/device/device.ts";
import type { InputSpec } from "../../src/ops/op.ts";
import type { DType } from "../../src/tensor/dtype.ts";
import { Random } from "../../src/tensor/random.ts";
import { sizeOf, stridesOf } from "../../src/tensor/shape.ts";

/** How an input lies in memory. */
export type Placement = "dense" | "offset" | "sliced" | "reversed";

/** Numbers for an input, from a stream of their own. */
export function sampleValues(spec: InputSpec, stream: string): Float32Array | Int32Array {
  const size = sizeOf(spec.shape);
  const random = new Random(7, stream);
  const { low = 0, high = 1 } = spec;
  if (spec.sample === "values") return Int32Array.from(spec.values ?? []);
  if (spec.sample === "integers") return random.integers(new Int32Array(size), low, high);
  if (spec.sample === "uniform") return random.uniform(new Float32Array(size), low, high);
  return random.normal(new Float32Array(size));
}

/** Whether a gradient by this input is asked for. */
export function isDifferentiable(spec: InputSpec): boolean {
  return spec.sample !== "integers" && spec.sample !== "values" && spec.differentiable !== false;
}

/** The values as a tensor, laid out as asked; all around it lies NaN. */
export function place(
  device: Device,
  values: Float32Array | Int32Array,
  shape: readonly number[],
  placement: Placement,
): Tensor {
  const dtype: DType = values instanceof Int32Array ? "int32" : device.defaultDtype;
  if (placement === "dense" || values.length === 0) return tensor(device, values, shape, { dtype });
  const { strides, offset, span } = layoutFor(shape, placement);
  const buffer = new Float64Array(span + 2 * guard).fill(dtype === "int32" ? 0x7f7f7f7f : Number.NaN);
  const index = new Array<number>(shape.length).fill(0);
  for (let i = 0; i < values.length; i++) {
    let at = guard + offset;
    for (let axis = 0; axis < shape.length; axis++) at += index[axis]! * strides[axis]!;
    buffer[at] = values[i]!;
    for (let axis = shape.length - 1; axis >= 0 && ++index[axis]! === shape[axis]; axis--) index[axis] = 0;
  }
  const holder = tensor(device, buffer, [buffer.length], { dtype });
  return new Tensor({ storage: holder.layout.storage, offset: guard + offset, strides }, shape);
}

const guard = 5;

function layoutFor(
  shape: readonly number[],
  placement: Placement,
): { strides: readonly number[]; offset: number; span: number } {
  if (placement === "offset") return { strides: stridesOf(shape), offset: 0, span: sizeOf(shape) };
  if (placement === "sliced") {
    // Every axis cut out of a longer one.
    const wider = shape.map((length, axis) => length + (axis % 2) + 1);
    return { strides: stridesOf(wider), offset: 1, span: sizeOf(wider) };
  }
  // Axes lie in memory in the opposite order, as after a transposition.
  const strides = stridesOf([...shape].reverse()).reverse();
  return { strides, offset: 0, span: sizeOf(shape) };
}
