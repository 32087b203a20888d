/** Parameters, modules, and the small layers that models are built of. */
export * from "./init.ts";
export * from "./linear.ts";
export * from "./module.ts";
export * from "./rotary.ts";
export * from "./short-conv.ts";
