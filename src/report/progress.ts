import { formatSeconds } from "./table.ts";

/** Where progress is written: a terminal, or a pipe that gets plain lines. */
export interface ProgressTarget {
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
  write(text: string): unknown;
}

/**
 * Progress of a long job: a bar that redraws on a terminal, a line now and then elsewhere. The time left is told once
 * two reports say how fast it goes; a job may begin anywhere, as one that goes on does.
 */
export class Progress {
  readonly #target: ProgressTarget;
  readonly #label: string;
  readonly #began = performance.now();
  #first: { readonly at: number; readonly done: number } | undefined;
  #last = Number.NEGATIVE_INFINITY;
  #isOpen = false;

  constructor(label: string, target: ProgressTarget) {
    this.#label = label;
    this.#target = target;
  }

  /**
   * @param done Share of the job, 0 to 1; undefined where nobody knows.
   * @param text What else to say, such as a loss and a rate.
   */
  update(done: number | undefined, text: string): void {
    const now = performance.now();
    if (done !== undefined) this.#first ??= { at: now, done };
    const isTerminal = this.#target.isTTY === true;
    if (done !== 1 && now - this.#last < (isTerminal ? 100 : 10_000)) return;
    this.#last = now;
    const tail = `${text}${this.#time(done, now)}`;
    const percent = done === undefined ? "" : `${Math.floor(100 * Math.min(1, done))} %`;
    if (!isTerminal) {
      this.#target.write(`${[this.#label, percent, tail].filter((part) => part !== "").join(" ")}\n`);
      return;
    }
    const columns = this.#target.columns ?? 80;
    const words = done === undefined ? tail : `${percent.padStart(5)} ${tail}`;
    const width = Math.max(8, Math.min(30, columns - this.#label.length - words.length - 5));
    const filled = Math.round(width * Math.min(1, done ?? 0));
    const bar = done === undefined ? "" : `${"█".repeat(filled)}${"░".repeat(width - filled)}`;
    this.#target.write(`\r${`${this.#label} ${bar}${words}`.slice(0, columns - 1)}\u001b[K`);
    this.#isOpen = true;
  }

  /** How long it will take, or took; nothing while that is not known. */
  #time(done: number | undefined, now: number): string {
    if (done === undefined) return "";
    if (done >= 1) return `, ${formatSeconds((now - this.#began) / 1000)}`;
    const first = this.#first!;
    if (done <= first.done) return "";
    const left = ((now - first.at) / 1000 / (done - first.done)) * (1 - done);
    return `, ${formatSeconds(Math.max(1, left))} left`;
  }

  /** Leaves the bar and goes to the next line. */
  end(): void {
    if (this.#isOpen) this.#target.write("\n");
    this.#isOpen = false;
  }
}
