export * from "./concat/index.ts";
export * from "./contiguous/index.ts";
export * from "./permute/index.ts";
export * from "./repeat-heads/index.ts";
export * from "./reshape/index.ts";
export * from "./rotary/index.ts";
export * from "./short-conv/index.ts";
export * from "./split/index.ts";
