interface Host {
  readonly setImmediate?: (done: () => void) => unknown;
  readonly MessageChannel?: new () => { readonly port1: Port; readonly port2: Port };
}

interface Port {
  onmessage: (() => void) | null;
  postMessage(value: unknown): void;
  close(): void;
}

/**
 * Lets timers, signals and whatever else waits in between. Not `setTimeout(0)`, which takes a millisecond and more: as
 * long as many tokens.
 */
export function nextTurn(): Promise<void> {
  const { setImmediate, MessageChannel } = globalThis as Host;
  return new Promise((resolve) => {
    if (setImmediate !== undefined) setImmediate(resolve);
    else if (MessageChannel !== undefined) {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        port1.close();
        resolve();
      };
      port2.postMessage(undefined);
    } else setTimeout(resolve, 0);
  });
}

/** Calls `nextTurn` so often that nobody waits longer than a few milliseconds, and no more often than that. */
export class Turns {
  readonly #milliseconds: number;
  #last = performance.now();

  constructor(milliseconds = 8) {
    this.#milliseconds = milliseconds;
  }

  /** Gives way where it is time to. */
  async pass(): Promise<void> {
    if (performance.now() - this.#last < this.#milliseconds) return;
    await nextTurn();
    this.#last = performance.now();
  }
}
