/** Where tensors live and kernels run. */
export type * from "./device.ts";
export type { HostOptions } from "./host/host.ts";
export { hostDevice } from "./host/host.ts";
export type { PoolWorker } from "./wasm/environment.ts";
export type { WasmOptions } from "./wasm/open.ts";
export { openWasm, openWasmSync } from "./wasm/open.ts";
export type { WasmDevice } from "./wasm/wasm.ts";
export { workerSource } from "./wasm/worker.ts";
