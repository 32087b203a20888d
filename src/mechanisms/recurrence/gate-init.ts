/** First values of the constants that gates are made of. */
import { formulaInit, type Init } from "../../nn/init.ts";

/** A_log: log U(low, high), the logarithm of a decay rate; never of 0. */
export function decayRateInit(low: number, high: number): Init {
  return formulaInit((_, random) => Math.log(Math.max(low + (high - low) * random.next(), 1e-4)));
}

/**
 * dt_bias: where softplus gives a time step drawn log-uniformly from [low, high], at least `floor`:
 * x = dt + log(1 − exp(−dt)).
 */
export function timeStepInit(low = 1e-3, high = 0.1, floor = 1e-4): Init {
  return formulaInit((_, random) => {
    const step = Math.max(Math.exp(Math.log(low) + random.next() * Math.log(high / low)), floor);
    return step + Math.log(-Math.expm1(-step));
  });
}
