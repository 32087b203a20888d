import { ConfigError, DeviceError } from "../../errors.ts";
import type { Environment } from "./environment.ts";

/** SIMD levels: a plain 128-bit, b fused multiply-add, c 256-bit pairs of b. */
export type Tier = "a" | "b" | "c";

/** `(v128, v128, v128) -> f32x4.relaxed_madd`: validates exactly where tier B runs. */
const relaxedProbe = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0],
  ...[1, 8, 1, 96, 3, 123, 123, 123, 1, 123],
  ...[3, 2, 1, 0],
  ...[10, 13, 1, 11, 0, 32, 0, 32, 1, 32, 2, 253, 133, 2, 11],
);

/** `() -> i32.const 0, i8x16.splat`: validates where WebAssembly has SIMD at all. */
const simdProbe = Uint8Array.of(
  ...[0, 97, 115, 109, 1, 0, 0, 0],
  ...[1, 5, 1, 96, 0, 1, 123],
  ...[3, 2, 1, 0],
  ...[10, 8, 1, 6, 0, 65, 0, 253, 15, 11],
);

/** A tier and why it is not a better one. */
export interface TierChoice {
  readonly tier: Tier;
  readonly notes: readonly string[];
}

/**
 * The best tier that validates here, or the one asked for where it does. Tier C is only a wish at this point: it is
 * kept after its self-test alone.
 * @throws ConfigError for an unknown name, DeviceError without SIMD or where tier B was demanded and is missing.
 */
export function chooseTier(asked: string, environment: Environment): TierChoice {
  if (!["auto", "a", "b", "c"].includes(asked)) {
    throw new ConfigError(`[openWasm] unknown tier: expected "auto", "a", "b" or "c", got "${asked}"`);
  }
  if (typeof WebAssembly === "undefined" || !WebAssembly.validate(simdProbe)) {
    throw new DeviceError("[openWasm] no SIMD: expected WebAssembly with 128-bit SIMD, got one without");
  }
  if (asked === "a") return { tier: "a", notes: [] };
  if (!relaxedValidates(environment)) {
    if (asked === "b") {
      throw new DeviceError(
        "[openWasm] no relaxed SIMD: expected it for tier b, got a WebAssembly without",
        'Take tier "auto", a newer browser, or Node 20 and newer',
      );
    }
    return { tier: "a", notes: ["tier a: this WebAssembly has no relaxed SIMD (fused multiply-add)"] };
  }
  if (asked !== "c") return { tier: "b", notes: [] };
  const major = environment.node?.major;
  if (major !== undefined && major >= 24) return { tier: "c", notes: [] };
  const found = major === undefined ? "this is not Node" : `this is Node ${major}`;
  return { tier: "b", notes: [`tier b instead of c: c needs Node 24 or newer, ${found}`] };
}

/** Node 20 knows relaxed SIMD under a flag that may be set while it runs; later ones have it and not the flag. */
function relaxedValidates(environment: Environment): boolean {
  if (WebAssembly.validate(relaxedProbe)) return true;
  if (environment.node?.major !== 20) return false;
  environment.node.v8.setFlagsFromString("--experimental-wasm-relaxed-simd");
  return WebAssembly.validate(relaxedProbe);
}
