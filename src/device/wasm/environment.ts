/** A thread as Node and browsers both give it. */
export interface PoolWorker {
  postMessage(message: unknown): void;
  terminate(): unknown;
}

/** What the JavaScript around Linnet offers: asked once per device, nothing is cached or changed at import. */
export interface Environment {
  readonly node: NodeParts | undefined;
  readonly cores: number;
  /** Why memory cannot be shared between threads here; undefined where it can. */
  readonly unshared: string | undefined;
  /** What could not be found out, one sentence each. */
  readonly notes: readonly string[];
  /** Why this thread may not wait for others; undefined where it may. */
  readonly waitless: string | undefined;
}

/** Node's own modules; bundles for browsers must not see them imported. */
export interface NodeParts {
  readonly major: number;
  readonly v8: { setFlagsFromString(flag: string): void };
  readonly os: { availableParallelism(): number };
  readonly threads: { Worker: new (source: string, options: object) => PoolWorker & NodeEvents };
}

/** The part of a Node worker that a browser's worker has under other names. */
export interface NodeEvents {
  on(event: string, listener: (value: unknown) => void): unknown;
  unref(): void;
  ref(): void;
}

const parts = ["v8", "os", "worker_threads"] as const;

function nodeMajor(): number | undefined {
  const version = typeof process === "undefined" ? undefined : process.versions?.node;
  return version === undefined ? undefined : Number.parseInt(version, 10);
}

/** What is known without waiting; on Node before 20.16 that leaves Node's modules out. */
export function environmentSync(): Environment {
  const major = nodeMajor();
  if (major === undefined) return describe(undefined);
  if (typeof process.getBuiltinModule !== "function") return describe(undefined, [blindNote]);
  const [v8, os, threads] = parts.map((name) => process.getBuiltinModule(name));
  return describe({ major, v8, os, threads } as unknown as NodeParts);
}

/** The whole environment, on every Node. */
export async function environment(): Promise<Environment> {
  const major = nodeMajor();
  if (major === undefined || typeof process.getBuiltinModule === "function") return environmentSync();
  const load = (name: string) => import(/* @vite-ignore */ /* webpackIgnore: true */ `node:${name}`);
  const [v8, os, threads] = await Promise.all(parts.map(load));
  return describe({ major, v8, os, threads } as unknown as NodeParts);
}

const blindNote =
  "one thread, plain SIMD: this Node is older than 20.16 and shows its modules to `await openWasm()` only";

function describe(node: NodeParts | undefined, notes: readonly string[] = []): Environment {
  const cores = node?.os.availableParallelism() ?? globalThis.navigator?.hardwareConcurrency ?? 1;
  const unshared = whyUnshared();
  return { node, cores, notes, unshared, waitless: unshared ?? whyWaitless() };
}

function whyUnshared(): string | undefined {
  if (typeof SharedArrayBuffer !== "undefined" && globalThis.crossOriginIsolated !== false) return undefined;
  return (
    "one thread on memory of its own: this page is not cross-origin isolated; serve it with the headers " +
    "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp"
  );
}

/** The main thread of a page may not block; asking it to is the only portable way to know. */
function whyWaitless(): string | undefined {
  try {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 1, 0);
    return undefined;
  } catch {
    return "one thread: this is the main thread of a page, which may not wait for others; import Linnet in a worker";
  }
}
