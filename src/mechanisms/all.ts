export { gatedDelta } from "./gated-delta/index.ts";
export { linear } from "./linear/index.ts";
