/** Elementary differentiable operations, each with the entry by which suites and benchmarks see it. */
export * from "./all.ts";
