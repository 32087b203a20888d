import { ConfigError } from "../errors.ts";

/** The learning rate of step `t` (1, 2, …) as a share of the largest one. */
export type Schedule = (t: number) => number;

interface Span {
  /** Steps that rise linearly from 0; 0 unless given. */
  readonly warmup?: number;
  readonly steps: number;
  /** Where it ends, as a share; 0 unless given. */
  readonly floor?: number;
}

/** 1 throughout, after an optional rise. */
export function constantSchedule(options: { readonly warmup?: number } = {}): Schedule {
  return (t) => rise(t, options.warmup ?? 0);
}

/** Half a cosine from 1 to the floor (arXiv 1608.03983v5, eq. 5, one period), after a rise. */
export function cosineSchedule(span: Span): Schedule {
  return decaying(span, (share, floor) => floor + (1 - floor) * 0.5 * (1 + Math.cos(Math.PI * share)));
}

/** A straight line from 1 to the floor, after a rise. */
export function linearSchedule(span: Span): Schedule {
  return decaying(span, (share, floor) => 1 - (1 - floor) * share);
}

/** Multiplied by `factor` after every `every` steps, after an optional rise. */
export function stepSchedule(options: {
  readonly every: number;
  readonly factor: number;
  readonly warmup?: number;
}): Schedule {
  const { every, factor, warmup = 0 } = options;
  if (!(every >= 1)) throw new ConfigError(`[stepSchedule] every is a number of steps >= 1, got ${every}`);
  return (t) => rise(t, warmup) * factor ** Math.floor(Math.max(0, t - 1 - warmup) / every);
}

function decaying(span: Span, shape: (share: number, floor: number) => number): Schedule {
  const { warmup = 0, steps, floor = 0 } = span;
  if (!(steps > warmup)) {
    throw new ConfigError(`[schedule] steps are more than the warm-up: expected > ${warmup}, got ${steps}`);
  }
  return (t) => {
    if (t <= warmup) return rise(t, warmup);
    return shape(Math.min(1, (t - warmup) / (steps - warmup)), floor);
  };
}

function rise(t: number, warmup: number): number {
  return t >= warmup ? 1 : t / warmup;
}
