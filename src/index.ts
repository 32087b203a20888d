/** The public surface of the library: re-exports only. Rooms with more to offer have entries of their own. */
export * from "./autograd/index.ts";
export * from "./device/index.ts";
export * from "./errors.ts";
export * from "./nn/index.ts";
export * from "./ops/index.ts";
export * from "./tensor/index.ts";
