/** Every benchmark that `npm run bench -- NAME` knows. */

export { cacheBench } from "./cache.ts";
export { decodeBench } from "./decode.ts";
export { loadBench } from "./load.ts";
export { matmulBench } from "./matmul.ts";
export { mechanismsBench } from "./mechanisms.ts";
export { memoryBench } from "./memory.ts";
export { opsBench } from "./ops.ts";
export { crossoverBench, scalingBench } from "./scaling.ts";
export { streamBench } from "./stream.ts";
export { trainBench } from "./train.ts";
