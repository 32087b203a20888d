import type { Kernel } from "../../device/device.ts";
import { packedHost, packHost, stridedHost } from "./host.ts";

/** C = (C +) A·B (+ bias) for any row and batch strides: buffers a, b, c, bias; ints as `host.ts` names them. */
export const stridedKernel: Kernel = { key: "matmul.strided.forward", host: stridedHost };

/** Weights `[out, in]` into panels of 16 outputs: buffers w, packed. */
export const packKernel: Kernel = { key: "matmul.pack.forward", host: packHost };

/** Y = (Y +) X·Wᵀ (+ bias) on packed weights: buffers x, packed, y, bias. */
export const packedKernel: Kernel = { key: "matmul.packed.forward", host: packedHost };
