const brand = Symbol.for("linnet.error");

/** What every error of Linnet carries besides its message: a stable code and, where one is known, the way out. */
export class LinnetError extends Error {
  readonly code: string;
  readonly hint: string | undefined;
  /** Two copies of the package recognise each other's errors by this registered symbol. */
  readonly [brand] = true;

  constructor(code: string, message: string, hint?: string, options?: ErrorOptions) {
    super(hint === undefined ? message : `${message}. ${hint}`, options);
    this.name = new.target.name;
    this.code = code;
    this.hint = hint;
  }
}

/** True for an error thrown by any copy of Linnet. */
export function isLinnetError(value: unknown): value is LinnetError {
  return value instanceof Error && (value as { [brand]?: boolean })[brand] === true;
}

/** Shapes or axes that do not fit each other. */
export class ShapeError extends LinnetError {
  constructor(message: string, hint?: string) {
    super("E_SHAPE", message, hint);
  }
}

/** A dtype that the argument, op or device does not take. */
export class DtypeError extends LinnetError {
  constructor(message: string, hint?: string) {
    super("E_DTYPE", message, hint);
  }
}

/** A value outside the domain its argument declares, or a result that is not finite where it must be. */
export class NumericsError extends LinnetError {
  constructor(message: string, hint?: string) {
    super("E_NUMERICS", message, hint);
  }
}

/** A device that cannot start, was closed, or lost one of its threads. */
export class DeviceError extends LinnetError {
  constructor(message: string, hint?: string, options?: ErrorOptions) {
    super("E_DEVICE", message, hint, options);
  }
}

/** An allocation that does not fit: says the bytes asked for and the bytes there. The device stays usable. */
export class OutOfMemoryError extends LinnetError {
  constructor(message: string, hint?: string) {
    super("E_OUT_OF_MEMORY", message, hint);
  }
}

/** Use of a tensor, device or session after it was disposed or its scope ended. */
export class DisposedError extends LinnetError {
  constructor(message: string, hint?: string) {
    super("E_DISPOSED", message, hint);
  }
}

/** A form, kernel, op or format that does not exist here; says why. */
export class UnsupportedError extends LinnetError {
  constructor(message: string, hint?: string) {
    super("E_UNSUPPORTED", message, hint);
  }
}

/** Options or configuration that make no sense together. */
export class ConfigError extends LinnetError {
  constructor(message: string, hint?: string) {
    super("E_CONFIG", message, hint);
  }
}

/** A file that is missing, truncated, foreign or hostile. */
export class FormatError extends LinnetError {
  constructor(message: string, hint?: string, options?: ErrorOptions) {
    super("E_FORMAT", message, hint, options);
  }
}

/** Throws a DtypeError where an argument is no tensor. */
export function checkTensor(who: string, name: string, value: unknown): void {
  // By what it has, not by its class: a program may hold the library twice.
  if ((value as { layout?: unknown } | null | undefined)?.layout !== undefined) return;
  const what = value === null ? "null" : typeof value === "object" ? value.constructor.name : typeof value;
  throw new DtypeError(`[${who}] ${name} is no tensor: expected a Tensor, got ${what}`);
}

/** Throws a ConfigError where an option is none of the words it knows; undefined stands for its default. */
export function checkWord(who: string, option: string, value: unknown, known: readonly string[]): void {
  if (value === undefined || known.includes(value as string)) return;
  throw new ConfigError(
    `[${who}] ${option} is one of a few words: expected ${known.join(" or ")}, got ${value}`,
  );
}

/** Names by their likeness to a mistyped one, the likeliest first: what an error about an unknown name lists. */
export function nearestFirst(name: string, known: readonly string[]): string[] {
  return [...known].sort((a, b) => distance(a, name) - distance(b, name));
}

/** Levenshtein distance. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    row = next;
  }
  return row[b.length]!;
}
