import { formatSeconds } from "./table.ts";

/** Where progress is written: a terminal, or a pipe that gets plain lines. */
export interface ProgressTarget {
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
  write(text: string): unknown;
}

/** Progress of a long job: a bar that redraws on a terminal, a line now and then elsewhere. */
export class Progress {
  readonly #target: ProgressTarget;
  readonly #label: string;
  readonly #began = performance.now();
  #last = Number.NEGATIVE_INFINITY;
  #isOpen = false;

  constructor(label: string, target: ProgressTarget) {
    this.#label = label;
    this.#target = target;
  }

  /** @param done Share of the job, 0 to 1. @param text What else to say, such as a loss and a rate. */
  update(done: number, text: string): void {
    const now = performance.now();
    const isTerminal = this.#target.isTTY === true;
    if (done < 1 && now - this.#last < (isTerminal ? 100 : 10_000)) return;
    this.#last = now;
    const elapsed = (now - this.#began) / 1000;
    const left = done > 0 ? (elapsed / done) * (1 - done) : Number.NaN;
    const percent = `${Math.floor(100 * Math.min(1, done))} %`.padStart(5);
    if (!isTerminal) {
      this.#target.write(`${this.#label} ${percent.trim()} ${text}, ${formatSeconds(left)} left\n`);
      return;
    }
    const tail = `${percent} ${text}, ${formatSeconds(left)} left`;
    const width = Math.max(
      8,
      Math.min(30, (this.#target.columns ?? 80) - this.#label.length - tail.length - 5),
    );
    const filled = Math.round(width * Math.min(1, done));
    const line = `${this.#label} ${"█".repeat(filled)}${"░".repeat(width - filled)}${tail}`;
    this.#target.write(`\r${line.slice(0, (this.#target.columns ?? 80) - 1)}\u001b[K`);
    this.#isOpen = true;
  }

  /** Leaves the bar and goes to the next line. */
  end(): void {
    if (this.#isOpen) this.#target.write("\n");
    this.#isOpen = false;
  }
}
