import type { Device, Storage } from "../device/device.ts";
import { Tensor } from "./tensor.ts";

/**
 * Runs `fn` in a lifetime of its own: every tensor made inside ends with it, except those in its result
 * (a tensor, or arrays and plain records of tensors, nested), which pass to the enclosing scope.
 *
 * `fn` may be asynchronous; the lifetime then ends when its promise settles. While it waits, whatever else runs
 * allocates in it too, so give concurrent jobs devices of their own or keep them apart.
 *
 * @example
 * const y = scope(device, () => square(silu(x)));
 */
export function scope<Result>(device: Device, fn: () => Result): Result {
  const lifetime = device.enter();
  let result: Result;
  try {
    result = fn();
  } catch (error) {
    lifetime.exit([]);
    throw error;
  }
  if (result instanceof Promise) {
    return result.then(
      (value: unknown) => {
        lifetime.exit(storagesIn(value));
        return value;
      },
      (error: unknown) => {
        lifetime.exit([]);
        throw error;
      },
    ) as Result;
  }
  lifetime.exit(storagesIn(result));
  return result;
}

function storagesIn(value: unknown, found: Storage[] = []): Storage[] {
  if (value instanceof Tensor) found.push(value.layout.storage);
  else if (Array.isArray(value)) for (const item of value) storagesIn(item, found);
  else if (value !== null && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype) {
    for (const item of Object.values(value)) storagesIn(item, found);
  }
  return found;
}
