/** Matrix products and packed weights. */
export { matmulEntry } from "./entry.ts";
export { type MatmulOptions, matmul } from "./matmul.ts";
export { linearPacked, type PackedWeights, packWeights } from "./packed.ts";
