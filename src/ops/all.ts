export * from "./contiguous/index.ts";
