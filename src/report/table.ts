/** A column of a table: where its text comes from and how it lies. */
export interface Column<Row> {
  readonly title: string;
  readonly value: (row: Row) => string | number;
  /** Numbers lie right unless told otherwise. */
  readonly align?: "left" | "right";
}

/**
 * Rows as a plain text table: a title line, a rule, a line a row; numbers to the right.
 *
 * @example
 * console.log(table([{ id: "gla", T: 64 }], [{ title: "id", value: (row) => row.id }, { title: "T", value: (row) => row.T }]));
 */
export function table<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
  const cells = rows.map((row) => columns.map((column) => column.value(row)));
  const widths = columns.map((column, i) =>
    Math.max(column.title.length, ...cells.map((line) => String(line[i]).length)),
  );
  const isRight = columns.map((column, i) =>
    column.align === undefined
      ? cells.length > 0 && cells.every((line) => typeof line[i] === "number")
      : column.align === "right",
  );
  const line = (texts: readonly string[]): string =>
    texts
      .map((text, i) => (isRight[i] ? text.padStart(widths[i]!) : text.padEnd(widths[i]!)))
      .join("  ")
      .trimEnd();
  return [
    line(columns.map((column) => column.title)),
    widths.map((width) => "─".repeat(width)).join("  "),
    ...cells.map((values) => line(values.map(String))),
  ].join("\n");
}

/** Bytes in the largest unit that leaves at least one digit before the point: "1.5 MB", powers of 1,000. */
export function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toPrecision(value >= 10 ? 3 : 2)} ${units[unit]}`;
}

/** A count with k, M, B after it: "1.3 B". */
export function formatCount(count: number): string {
  const units = ["", " k", " M", " B", " T"];
  let value = count;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toPrecision(value >= 10 ? 3 : 2)}${units[unit]}`;
}

/** Seconds as "7 s", "1:05" or "2:00:01". */
export function formatSeconds(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const pad = (n: number): string => String(n).padStart(2, "0");
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours > 0 ? `${hours}:${pad(minutes)}:${pad(whole % 60)}` : `${minutes}:${pad(whole % 60)}`;
}
