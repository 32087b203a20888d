/**
 * The normal distribution by additions, multiplications, divisions and square roots of float64 alone, whose bits IEEE
 * 754 fixes. Math.exp and Math.log differ between engines in their last bit.
 */

const float = new Float64Array(1);
const words = new Uint32Array(float.buffer);
const ln2High = 0.6931471803691238; // its last 21 bits are zero, so a small whole multiple is exact
const ln2Low = 1.9082149292705877e-10;

function polynomial(coefficients: readonly number[], x: number): number {
  let sum = 0;
  for (let i = coefficients.length - 1; i >= 0; i--) sum = sum * x + coefficients[i]!;
  return sum;
}

// 2 / (2n + 1) and 1 / n!
const logCoefficients = [2, 2 / 3, 2 / 5, 2 / 7, 2 / 9, 2 / 11, 2 / 13, 2 / 15, 2 / 17, 2 / 19, 2 / 21];
const expCoefficients = [
  1,
  1,
  1 / 2,
  1 / 6,
  1 / 24,
  1 / 120,
  1 / 720,
  1 / 5040,
  1 / 40320,
  1 / 362880,
  1 / 3628800,
  1 / 39916800,
  1 / 479001600,
  1 / 6227020800,
  1 / 87178291200,
];

/** Natural logarithm of a normal positive number. */
export function portableLog(x: number): number {
  float[0] = x;
  let exponent = ((words[1]! >>> 20) & 0x7ff) - 1023;
  words[1] = (words[1]! & 0xfffff) | 0x3ff00000;
  let mantissa = float[0];
  if (mantissa > Math.SQRT2) {
    mantissa /= 2;
    exponent++;
  }
  const s = (mantissa - 1) / (mantissa + 1); // |s| <= 0.172, log(mantissa) = 2 atanh(s)
  return exponent * ln2High + (exponent * ln2Low + s * polynomial(logCoefficients, s * s));
}

/** e^x for x <= 0; gradual underflow to 0. */
export function portableExp(x: number): number {
  if (x < -746) return 0;
  const exponent = Math.floor(x / Math.LN2 + 0.5);
  const rest = x - exponent * ln2High - exponent * ln2Low; // |rest| <= 0.347
  const half = exponent >> 1;
  return polynomial(expCoefficients, rest) * powerOfTwo(half) * powerOfTwo(exponent - half);
}

function powerOfTwo(exponent: number): number {
  words[0] = 0;
  words[1] = (exponent + 1023) << 20;
  return float[0]!;
}

/** The probability that a standard normal number is at most x. */
export function normalCdf(x: number): number {
  if (Number.isNaN(x)) return x;
  if (x > 0) return 1 - normalCdf(-x);
  const z = -x;
  const density = portableExp(-z * z * 0.5) * 0.3989422804014327; // 1 / sqrt(2 pi)
  if (z > 2.5) {
    // Laplace's continued fraction, from the inside
    let fraction = z;
    for (let n = 100; n > 0; n--) fraction = z + n / fraction;
    return density === 0 ? 0 : density / fraction;
  }
  let term = z;
  let sum = 0;
  for (let n = 3; sum + term !== sum; n += 2) {
    sum += term;
    term *= (z * z) / n;
  }
  return 0.5 - density * sum;
}

// M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37 (1988)
const centralTop = [
  3.3871328727963665, 133.14166789178438, 1971.5909503065513, 13731.69376550946, 45921.95393154987,
  67265.7709270087, 33430.57558358813, 2509.0809287301227,
];
const centralBottom = [
  1, 42.31333070160091, 687.1870074920579, 5394.196021424751, 21213.794301586597, 39307.89580009271,
  28729.085735721943, 5226.495278852854,
];
const nearTop = [
  1.4234371107496835, 4.630337846156546, 5.769497221460691, 3.6478483247632045, 1.2704582524523684,
  0.2417807251774506, 0.022723844989269184, 0.0007745450142783414,
];
const nearBottom = [
  1, 2.053191626637759, 1.6763848301838038, 0.6897673349851, 0.14810397642748008, 0.015198666563616457,
  0.0005475938084995345, 1.0507500716444169e-9,
];
const farTop = [
  6.657904643501103, 5.463784911164114, 1.7848265399172913, 0.29656057182850487, 0.026532189526576124,
  0.0012426609473880784, 2.7115555687434876e-5, 2.0103343992922881e-7,
];
const farBottom = [
  1, 0.599832206555888, 0.1369298809227358, 0.014875361290850615, 0.0007868691311456133,
  1.8463183175100548e-5, 1.421511758316446e-7, 2.0442631033899397e-15,
];

/**
 * The number that a standard normal one is at most with probability p, 0 < p < 1: AS 241 of M. J. Wichura, good to
 * 1e-15 or so.
 */
export function normalQuantile(p: number): number {
  const centre = p - 0.5;
  if (Math.abs(centre) <= 0.425) {
    const r = 0.180625 - centre * centre;
    return (centre * degreeSeven(centralTop, r)) / degreeSeven(centralBottom, r);
  }
  const r = Math.sqrt(-portableLog(centre < 0 ? p : 1 - p));
  const tail =
    r <= 5
      ? degreeSeven(nearTop, r - 1.6) / degreeSeven(nearBottom, r - 1.6)
      : degreeSeven(farTop, r - 5) / degreeSeven(farBottom, r - 5);
  return centre < 0 ? -tail : tail;
}

/** Without a loop, for every normal number pays for two of them. */
function degreeSeven(c: readonly number[], x: number): number {
  const upper = ((c[7]! * x + c[6]!) * x + c[5]!) * x + c[4]!;
  return (((upper * x + c[3]!) * x + c[2]!) * x + c[1]!) * x + c[0]!;
}
