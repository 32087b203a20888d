export { delta } from "./delta/index.ts";
export { gatedDelta } from "./gated-delta/index.ts";
export { gla } from "./gla/index.ts";
export { kda } from "./kda/index.ts";
export { lightning } from "./lightning/index.ts";
export { linear } from "./linear/index.ts";
export { retention } from "./retention/index.ts";
