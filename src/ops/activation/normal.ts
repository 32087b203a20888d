/**
 * The distribution function of the standard normal, Φ(x) = ½ erfc(−x/√2), to about 1e-15 relative.
 *
 * Source: the series and the continued fraction of DLMF §7.6 and §7.9, the second where |x| >= 3.
 */
export function normalCumulative(x: number): number {
  if (Number.isNaN(x)) return x;
  const a = Math.abs(x);
  if (a < 3) return 0.5 + centralPart(x);
  const tail = upperTail(a);
  return x > 0 ? 1 - tail : tail;
}

/** φ(x) (x + x³/3 + x⁵/15 + …), all terms of one sign. */
function centralPart(x: number): number {
  let term = x;
  let sum = x;
  for (let n = 3; Math.abs(term) > 1e-17 * Math.abs(sum); n += 2) {
    term *= (x * x) / n;
    sum += term;
  }
  return density(x) * sum;
}

/** φ(a) / (a + 1/(a + 2/(a + 3/(a + …)))), evaluated from far inside. */
function upperTail(a: number): number {
  if (a > 40) return 0;
  let denominator = a;
  for (let n = 120; n >= 1; n--) denominator = a + n / denominator;
  return density(a) / denominator;
}

function density(x: number): number {
  return Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
}
