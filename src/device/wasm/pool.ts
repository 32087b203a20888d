import { closedGate, control, threadBytes, trapTextBytes } from "./control.ts";
import type { Environment, NodeEvents, PoolWorker } from "./environment.ts";
import type { Runtime } from "./module.ts";
import { workerSource } from "./worker.ts";

/** What every thread of a pool is given. */
export interface PoolSetup {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly runtime: Runtime;
  readonly names: readonly string[];
  /** Address of the control block. */
  readonly block: number;
  /** All of them, the caller's included. */
  readonly threads: number;
  readonly environment: Environment;
  readonly createWorker: ((source: string) => PoolWorker) | undefined;
}

/** Spinning this long before sleeping: shorter, and the system wakes the worker on the caller's own core. */
const spinMilliseconds = 1;

/** Time for the workers to report before the device goes on without them. */
const startMilliseconds = 10_000;

/** A worker as either world makes it. */
type AnyWorker = PoolWorker & Partial<NodeEvents> & Partial<Pick<Worker, "addEventListener">>;

/** The threads of a device beside the caller's: started once, woken through shared memory. */
export class Pool {
  readonly threads: number;
  readonly #setup: PoolSetup;
  readonly #workers: AnyWorker[] = [];
  readonly #reported = new Set<number>();
  readonly #words: Int32Array;
  readonly #text: Uint8Array;
  readonly #owner = new FinalizationRegistry(() => this.close());
  #closing = false;
  #waiting: (() => void) | undefined;
  /** Why a thread is gone; undefined while all are there. */
  lost: string | undefined;
  /** Why the threads never came up; the device then goes on with the caller's thread alone. */
  failed: string | undefined;

  constructor(setup: PoolSetup) {
    this.#setup = setup;
    this.threads = setup.threads;
    const { buffer } = setup.memory;
    this.#words = new Int32Array(buffer, setup.block, control.threads / 4);
    this.#text = new Uint8Array(buffer, setup.block + control.trapText, trapTextBytes);
    new Uint8Array(buffer, setup.block, control.threads + setup.threads * threadBytes).fill(0);
    this.#words[control.active / 4] = closedGate;
    this.#words[control.settings / 4] = spinTurns(setup.runtime, setup.block);
    this.#words[control.settings / 4 + 3] = setup.threads;
    try {
      for (let thread = 1; thread < setup.threads; thread++) this.#start(thread);
    } catch (error) {
      this.#fail(`${error}`);
    }
  }

  #start(thread: number): void {
    const { module, memory, names, block } = this.#setup;
    const worker = this.#create();
    this.#workers.push(worker);
    const gone = (why: string) => this.#gone(thread, why);
    const ready = (): void => {
      this.#reported.add(thread);
      if (this.#reported.size === this.threads - 1) this.#waiting?.();
    };
    if (worker.on !== undefined) {
      worker.on("message", ready);
      worker.on("error", (error) => gone(`${error}`));
      worker.on("exit", (code) => gone(`it ended with code ${code}`));
      worker.unref!();
    } else {
      worker.addEventListener!("message", ready);
      worker.addEventListener!("error", (event) => gone(event.message || "its script did not load"));
    }
    worker.postMessage({ module, memory, names, block, thread });
  }

  #create(): AnyWorker {
    const { createWorker, environment } = this.#setup;
    if (createWorker !== undefined) return createWorker(workerSource);
    if (environment.node !== undefined) {
      // Loaders and flags of the program are not for these threads: they would only start slower.
      const options = { eval: true, execArgv: [], name: "linnet" };
      return new environment.node.threads.Worker(workerSource, options);
    }
    const url = URL.createObjectURL(new Blob([workerSource], { type: "text/javascript" }));
    const worker = new Worker(url, { name: "linnet" });
    worker.addEventListener("message", () => URL.revokeObjectURL(url), { once: true });
    return worker;
  }

  /** Resolves when every thread has reported, or none will. */
  async started(): Promise<void> {
    if (this.failed !== undefined || this.#reported.size === this.threads - 1) return;
    for (const worker of this.#workers) worker.ref?.();
    let timer: ReturnType<typeof setTimeout> | undefined;
    await new Promise<void>((resolve) => {
      this.#waiting = resolve;
      timer = setTimeout(() => {
        this.#fail(`${this.#reported.size} of ${this.threads - 1} reported within ${startMilliseconds} ms`);
      }, startMilliseconds);
    });
    clearTimeout(timer);
    for (const worker of this.#workers) worker.unref?.();
  }

  #gone(thread: number, why: string): void {
    if (this.#closing) return;
    if (this.#reported.has(thread)) this.lost ??= `thread ${thread} is gone: ${why}`;
    else this.#fail(why);
  }

  #fail(why: string): void {
    this.failed ??= why;
    this.close();
    this.#waiting?.();
  }

  /** Ends the threads also when nobody holds their device any more, though nobody closed it. */
  endWith(device: object): void {
    this.#owner.register(device, undefined);
  }

  /** Gives a thread its scratch memory; only between jobs. */
  setScratch(thread: number, address: number): void {
    const at = control.threads + thread * threadBytes;
    new Uint32Array(this.#setup.memory.buffer, this.#setup.block + at, 1)[0] = address;
  }

  /** The message of the last trap in a worker. */
  trapText(): string {
    return String.fromCharCode(...this.#text.subarray(0, this.#text.indexOf(0)));
  }

  /** Ends every thread; twice is harmless. */
  close(): void {
    if (this.#closing) return;
    this.#closing = true;
    Atomics.store(this.#words, control.settings / 4 + 1, 1);
    Atomics.add(this.#words, control.generation / 4, 1);
    Atomics.notify(this.#words, control.generation / 4);
    for (const worker of this.#workers) worker.terminate();
    this.#workers.length = 0;
  }
}

/** Turns of the waiting loop that take about as long as a thread should spin. */
function spinTurns(runtime: Runtime, block: number): number {
  const sample = 200_000;
  let shortest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 3; i++) {
    const begin = performance.now();
    runtime.spin(block, sample);
    shortest = Math.min(shortest, performance.now() - begin);
  }
  return Math.round((sample * spinMilliseconds) / Math.max(shortest, 0.01));
}
