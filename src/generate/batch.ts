import { nextTurn } from "../device/turn.ts";
import { ConfigError } from "../errors.ts";
import type { GenerateOptions, Generation } from "./generation.ts";
import type { LanguageModel } from "./language-model.ts";
import type { Session } from "./session.ts";
import type { Stepper } from "./stepper.ts";

interface Waiting {
  readonly session: Session;
  readonly id: number;
  readonly done: () => void;
  readonly failed: (reason: unknown) => void;
}

/** Options of a batch. */
export interface BatchOptions {
  /** Sessions stepped at once at most; 64 unless given. */
  readonly rows?: number;
}

/**
 * Steps the sessions of many generations together: the weights are read once for all of them.
 *
 * Generations join by being begun and leave by ending, at any time. What one of them writes does not depend on which
 * others are beside it, bit for bit.
 *
 * @example
 * const batch = new Batch(model);
 * const texts = ["One", "Two"].map((prompt) => batch.generate(model.session(), { prompt, maxNewTokens: 4 }));
 * console.log((await Promise.all(texts)).map(({ text }) => text));
 */
export class Batch implements Stepper {
  readonly model: LanguageModel;
  readonly #rows: number;
  readonly #waiting: Waiting[] = [];
  #isScheduled = false;

  constructor(model: LanguageModel, options: BatchOptions = {}) {
    const { rows = 64 } = options;
    if (!Number.isInteger(rows) || rows < 1)
      throw new ConfigError(`[batch] rows is a whole number >= 1, got ${rows}`);
    this.model = model;
    this.#rows = rows;
  }

  /** Continues a session among the others. */
  generate(session: Session, options: GenerateOptions = {}): Generation {
    return session.generate(options, this);
  }

  /** Feeds one token to a session, together with what others ask for in the same turn. */
  step(session: Session, id: number): Promise<void> {
    if (session.model !== this.model) {
      throw new ConfigError(
        "[batch] sessions of one model are stepped together: expected its own, got another's",
      );
    }
    return new Promise((done, failed) => {
      this.#waiting.push({ session, id, done, failed });
      if (this.#isScheduled) return;
      this.#isScheduled = true;
      void nextTurn().then(() => this.flush());
    });
  }

  private flush(): void {
    this.#isScheduled = false;
    while (this.#waiting.length > 0) this.stepRows(this.#waiting.splice(0, this.#rows));
  }

  private stepRows(all: readonly Waiting[]): void {
    const slots: number[] = [];
    // A session may have been disposed while it waited; that is no reason for the others to stop.
    const rows = all.filter((row) => {
      try {
        slots.push(row.session.slot);
        return true;
      } catch (error) {
        row.failed(error);
        return false;
      }
    });
    try {
      const logits = this.model.advance(
        slots,
        Int32Array.from(rows, ({ id }) => id),
      );
      for (const [i, { session, id, done }] of rows.entries()) {
        // A row of its own: the array of all rows would live as long as the slowest session.
        session.take([id], logits[i]!.slice());
        done();
      }
    } catch (error) {
      for (const { failed } of rows) failed(error);
    }
  }
}
