/** The public surface of the library: re-exports only. */
export * from "./errors.ts";
