/** Tensors, and how gradients come to them. */
export * from "./grad-check.ts";
export * from "./recompute.ts";
export * from "./scope.ts";
export * from "./tape.ts";
export * from "./tensor.ts";
