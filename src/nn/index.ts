/** Parameters, modules, and the small layers that models are built of. */
export * from "./embedding.ts";
export * from "./experts.ts";
export * from "./feed-forward.ts";
export * from "./init.ts";
export * from "./linear.ts";
export * from "./module.ts";
export * from "./norm.ts";
export * from "./positions.ts";
export * from "./rotary.ts";
export * from "./short-conv.ts";
