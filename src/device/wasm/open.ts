import { ConfigError, DeviceError } from "../../errors.ts";
import { controlBytes } from "./control.ts";
import type { Environment, PoolWorker } from "./environment.ts";
import { environment, environmentSync } from "./environment.ts";
import { kernelNames } from "./generated/kernels.ts";
import { base64 as tierA } from "./generated/tier-a.ts";
import { base64 as tierB } from "./generated/tier-b.ts";
import { base64 as tierC } from "./generated/tier-c.ts";
import { openMemory } from "./memory.ts";
import { decodeBase64, instantiate, withUnsharedMemory } from "./module.ts";
import { Pool } from "./pool.ts";
import { selfTest, setFusion } from "./self-test.ts";
import type { Refuse } from "./store.ts";
import { Store } from "./store.ts";
import type { Tier } from "./tiers.ts";
import { chooseTier } from "./tiers.ts";
import { WasmDevice } from "./wasm.ts";

/** Options of `openWasm`; every one has a default that fits. */
export interface WasmOptions {
  /** Threads that compute, the caller's included; one per core up to 16 unless given, or LINNET_THREADS. */
  readonly threads?: number;
  /** SIMD level: "auto" takes b where it validates, else a; "c" must be asked for. Or LINNET_TIER. */
  readonly tier?: "auto" | Tier;
  /** Memory to begin with; it grows by itself. 16 MiB unless given. */
  readonly initialBytes?: number;
  /** Where growing ends; 4 GiB, the most there can be, unless given. */
  readonly maximumBytes?: number;
  /** False keeps the memory to this thread; true is the default wherever the page or process allows it. */
  readonly shared?: boolean;
  /** Fill new memory and scratch memory with NaN so that reading what was never written shows. */
  readonly poison?: boolean;
  /** Makes a thread that runs the given source, where a content security policy forbids `blob:` workers. */
  readonly createWorker?: (source: string) => PoolWorker;
  /** How long a thread may do nothing inside a job before it counts as lost; 10 s unless given. */
  readonly workerTimeoutMs?: number;
  /** Asked before memory is given out; true makes that fail as if there were none. For tests of what happens then. */
  readonly refuse?: Refuse;
}

/** What options and environment come to; V8's flags are set, nothing is compiled yet. */
interface Plan {
  readonly environment: Environment;
  readonly tier: Tier;
  readonly shared: boolean;
  readonly threads: number;
  readonly notes: readonly string[];
}

const sources: Record<Tier, string> = { a: tierA, b: tierB, c: tierC };

/**
 * Opens the default device: SIMD kernels on one linear memory, shared with as many threads as there are cores.
 *
 * @returns A device with its threads up; `info()` says tier, threads, bytes and why something faster is not in use.
 * @throws ConfigError for options that make no sense, DeviceError where WebAssembly, SIMD or memory is missing.
 * Costs 30 to 60 ms in Node, most of it for the threads to start.
 * @example
 * const device = await openWasm({ threads: 2 });
 * console.log(device.info().tier);
 * device.close();
 */
export async function openWasm(options: WasmOptions = {}): Promise<WasmDevice> {
  const plan = makePlan(options, await environment());
  const compile = (tier: Tier) =>
    WebAssembly.compile(bytesOf(tier, plan.shared)).catch((cause) => {
      throw compileError(cause);
    });
  const module = await compile(plan.tier);
  const fallback = plan.tier === "c" ? await compile("b") : undefined;
  const { device, pool } = assemble(options, plan, module, fallback);
  await pool?.started();
  return device;
}

/**
 * `openWasm` at once: the threads join when they are up. For programs that cannot wait; not for the main thread of a
 * page, where compiling at once may be refused. On Node before 20.16 it finds one thread and tier a only.
 */
export function openWasmSync(options: WasmOptions = {}): WasmDevice {
  const plan = makePlan(options, environmentSync());
  const compile = (tier: Tier) => {
    try {
      return new WebAssembly.Module(bytesOf(tier, plan.shared));
    } catch (cause) {
      throw compileError(cause);
    }
  };
  const module = compile(plan.tier);
  const fallback = plan.tier === "c" ? compile("b") : undefined;
  return assemble(options, plan, module, fallback).device;
}

function compileError(cause: unknown): DeviceError {
  return new DeviceError(
    `[openWasm] the kernels did not compile: expected a module, got "${cause}"`,
    "A page with a content security policy must allow script-src 'wasm-unsafe-eval'; its main thread must await openWasm()",
    { cause },
  );
}

function bytesOf(tier: Tier, shared: boolean): Uint8Array<ArrayBuffer> {
  const bytes = decodeBase64(sources[tier]);
  return shared ? bytes : withUnsharedMemory(bytes);
}

function makePlan(options: WasmOptions, found: Environment): Plan {
  const setting = (name: string) => (typeof process === "undefined" ? undefined : process.env?.[name]);
  const { tier, notes } = chooseTier(options.tier ?? setting("LINNET_TIER") ?? "auto", found);
  const wished = options.threads ?? Number(setting("LINNET_THREADS") ?? Math.min(found.cores, 16));
  if (!Number.isInteger(wished) || wished < 1 || wished > 256) {
    throw new ConfigError(`[openWasm] bad threads: expected a whole number from 1 to 256, got ${wished}`);
  }
  const unshared = options.shared === false ? "one thread: shared: false was asked for" : found.unshared;
  const reason = unshared ?? (wished > 1 ? found.waitless : undefined);
  const threads = reason === undefined ? wished : 1;
  if (tier === "c") setFusion(found.node!, true);
  return {
    environment: found,
    tier,
    shared: unshared === undefined,
    threads,
    notes: [...found.notes, ...notes, ...(reason === undefined ? [] : [reason])],
  };
}

function assemble(
  options: WasmOptions,
  plan: Plan,
  compiled: WebAssembly.Module,
  fallback: WebAssembly.Module | undefined,
): { device: WasmDevice; pool: Pool | undefined } {
  const { shared, threads } = plan;
  const failure = fallback === undefined ? undefined : selfTest(compiled, fallback, shared, kernelNames);
  if (failure !== undefined) setFusion(plan.environment.node!, false);
  const tier = failure === undefined ? plan.tier : "b";
  const module = failure === undefined ? compiled : fallback!;
  const opened = openMemory(shared, options.initialBytes ?? 2 ** 24, options.maximumBytes ?? 2 ** 32);
  const instance = instantiate(module, opened.memory, kernelNames);
  const poison = options.poison ?? false;
  const store = new Store(opened, instance.runtime, { poison, refuse: options.refuse });
  const block = store.takeRun("openWasm", controlBytes(threads));
  const setup = {
    ...{ module, memory: opened.memory, runtime: instance.runtime, names: kernelNames },
    ...{ block: block.address, threads, environment: plan.environment, createWorker: options.createWorker },
  };
  const pool = threads > 1 ? new Pool(setup) : undefined;
  const workerTimeoutMs = options.workerTimeoutMs ?? 10_000;
  const engine = { instance, names: kernelNames, store, block, threads, poison, workerTimeoutMs, pool };
  const notes = [...plan.notes, ...(failure === undefined ? [] : [failure]), ...opened.notes];
  const device = new WasmDevice(engine, tier, notes);
  pool?.endWith(device);
  return { device, pool };
}
