import { openWasm } from "../device/wasm/open.ts";
import type { WasmDevice } from "../device/wasm/wasm.ts";

/** Options that every command with a device has. */
export interface DeviceOptions {
  readonly threads?: number;
  readonly tier?: "auto" | "a" | "b" | "c";
}

/**
 * The device of a command. It owns the process, so on Node 24 and newer it asks for tier C, which tests itself first
 * and falls back to B.
 */
export function openDevice(options: DeviceOptions): Promise<WasmDevice> {
  const newest = Number(process.versions.node.split(".")[0]) >= 24 ? "c" : "auto";
  const tier = options.tier ?? (process.env["LINNET_TIER"] === undefined ? newest : undefined);
  return openWasm({
    ...(options.threads === undefined ? {} : { threads: options.threads }),
    ...(tier === undefined ? {} : { tier }),
  });
}

/** One line that says what runs. */
export function describeDevice(device: WasmDevice): string {
  const { tier, threads, notes } = device.info();
  const level = { a: "plain SIMD", b: "relaxed SIMD", c: "relaxed SIMD in 256-bit pairs" }[tier ?? "a"] ?? "";
  return [`WebAssembly tier ${tier} (${level}), ${threads} thread${threads === 1 ? "" : "s"}`, ...notes].join(
    "\n  ",
  );
}
