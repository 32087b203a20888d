/** How a model answers. */
export interface SequenceScore {
  /** Mean cross-entropy over what is asked, in nats. */
  readonly nats: number;
  /** Share of what is asked whose most likely answer is right. */
  readonly accuracy: number;
}

/** Adds up answers, batch after batch. */
export class Tally {
  private nats = 0;
  private right = 0;
  private asked = 0;

  /** @param logits `[targets.length, width]`, row-major. @param targets Negative ones ask nothing. */
  add(logits: ArrayLike<number>, width: number, targets: ArrayLike<number>): void {
    for (let row = 0; row < targets.length; row++) {
      const target = targets[row]!;
      if (target < 0) continue;
      const from = row * width;
      let best = from;
      for (let i = from; i < from + width; i++) if (logits[i]! > logits[best]!) best = i;
      let total = 0;
      for (let i = from; i < from + width; i++) total += Math.exp(logits[i]! - logits[best]!);
      this.nats += logits[best]! + Math.log(total) - logits[from + target]!;
      this.right += best === from + target ? 1 : 0;
      this.asked++;
    }
  }

  /** Means over everything asked. */
  get score(): SequenceScore {
    const count = Math.max(1, this.asked);
    return { nats: this.nats / count, accuracy: this.right / count };
  }
}
