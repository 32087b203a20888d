/** Descriptions of tensors without their storage: axes, shapes, dtypes, half precision, random numbers. */
export * from "./axes.ts";
export * from "./dtype.ts";
export * from "./half.ts";
export * from "./philox.ts";
export * from "./random.ts";
export * from "./shape.ts";
