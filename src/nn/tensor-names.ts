/** How the parameters of a module are called in published files, as plain data beside the module it is about. */

/** A tensor of a file that holds the rows of several parameters. */
export interface JoinedTensor {
  readonly file: string;
  /** Own names in the order of their rows. */
  readonly parts: readonly string[];
  /** The rows lie together by key head (q of head 0, k of head 0, …) instead of part after part. */
  readonly byHead?: boolean;
  /** Places of axes of length 1 that the file has beyond the parameters'. */
  readonly unitAxes?: readonly number[];
}

/**
 * Names in files by own names, where they are not the own words in snake case. `*` stands for a number and takes it
 * along. Of several spellings each is read and the first is written.
 */
export interface TensorNames {
  readonly renamed?: Readonly<Record<string, string | readonly string[]>>;
  readonly joined?: readonly JoinedTensor[];
  /** Own name → places of axes of length 1 that the file has beyond the parameter's. */
  readonly unitAxes?: Readonly<Record<string, readonly number[]>>;
}

/** The spellings of a parameter in files, that which is written first; undefined where a joined tensor holds it. */
export function fileNames(names: TensorNames, own: string): readonly string[] | undefined {
  if (names.joined?.some(({ parts }) => parts.includes(own))) return undefined;
  const { pattern, numbers } = withoutNumbers(own);
  const renamed = names.renamed?.[own] ?? names.renamed?.[pattern];
  if (renamed === undefined) return [snakeCase(own)];
  const spellings = typeof renamed === "string" ? [renamed] : renamed;
  if (names.renamed?.[own] !== undefined) return spellings;
  return spellings.map((spelling) => withNumbers(spelling, numbers));
}

/** A name with `*` in place of its whole-number segments, and the numbers. */
export function withoutNumbers(name: string): { pattern: string; numbers: readonly string[] } {
  const numbers: string[] = [];
  const segments = name.split(".").map((segment) => {
    if (!/^\d+$/.test(segment)) return segment;
    numbers.push(segment);
    return "*";
  });
  return { pattern: segments.join("."), numbers };
}

/** Numbers in place of the `*` of a name, in order. */
export function withNumbers(pattern: string, numbers: readonly string[]): string {
  let next = 0;
  return pattern.replaceAll("*", () => numbers[next++] ?? "*");
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
