export { copy } from "./copy/index.ts";
export { induction } from "./induction/index.ts";
export { mqar } from "./mqar/index.ts";
