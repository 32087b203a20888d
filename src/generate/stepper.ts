import { Turns } from "../device/turn.ts";
import type { Session } from "./session.ts";

/** Feeds tokens to sessions: to each by itself, or to many together. */
export interface Stepper {
  /** Feeds one token; the session then has its next logits. */
  step(session: Session, id: number): Promise<void>;
}

/** Feeds each session by itself. */
export class LoneStepper implements Stepper {
  readonly #turns = new Turns();

  async step(session: Session, id: number): Promise<void> {
    const ids = Int32Array.of(id);
    session.take(ids, session.model.advance([session.slot], ids)[0]!);
    await this.#turns.pass();
  }
}
