/** The mechanisms, the contract they fulfil, and the lookup by id. */
export * from "./all.ts";
export { KeyValueCache, type KeyValueCacheOptions } from "./attention/key-value-cache.ts";
export * from "./feature-maps/index.ts";
export { withValueChecks } from "./inputs.ts";
export * from "./layer.ts";
export * from "./mechanism.ts";
export { mechanism, mechanisms } from "./registry.ts";
export * from "./run.ts";
export { impliedWeights } from "./weights.ts";
