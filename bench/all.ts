/** Every benchmark that `npm run bench -- NAME` knows. */
export { matmulBench } from "./matmul.ts";
