import { ConfigError } from "../errors.ts";

/**
 * The learning rate of step `t` (1, 2, …) as a share of the largest one; `seconds` of training, those before a resume
 * included, have passed when the step begins.
 */
export type Schedule = (t: number, seconds: number) => number;

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

/**
 * Half a cosine over a span of time instead of a number of steps, after a rise over steps: for a run that ends by the
 * clock, on a machine whose speed nobody knows. Rates then depend on the clock; a run records every one of them.
 */
export function clockSchedule(span: {
  readonly seconds: number;
  readonly warmup?: number;
  readonly floor?: number;
}): Schedule {
  const { seconds: limit, warmup = 0, floor = 0 } = span;
  if (!(limit > 0)) throw new ConfigError(`[clockSchedule] seconds are a number > 0, got ${limit}`);
  return (t, seconds) => {
    const share = Math.min(1, seconds / limit);
    return rise(t, warmup) * (floor + (1 - floor) * 0.5 * (1 + Math.cos(Math.PI * share)));
  };
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
