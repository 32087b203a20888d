/** The mechanisms, the contract they fulfil, and the lookup by id. */
export * from "./all.ts";
export * from "./feature-maps/index.ts";
export * from "./layer.ts";
export * from "./mechanism.ts";
export { mechanism, mechanisms } from "./registry.ts";
