/** One line of a plot. */
export interface Curve {
  readonly name: string;
  readonly x: readonly number[];
  readonly y: readonly number[];
  /** Least and most of several runs at every x, `y` being their mean: a band in the picture. */
  readonly low?: readonly number[];
  readonly high?: readonly number[];
}

/** What a plot says beside its curves. */
export interface PlotLabels {
  readonly title: string;
  readonly x: string;
  readonly y: string;
}

interface Range {
  readonly low: number;
  readonly high: number;
}

const colours = ["#1b6ca8", "#c8452c", "#2e8b57", "#8e5ea2", "#b8860b", "#444444", "#d6589a", "#3aa6a6"];
const marks = ["●", "▲", "■", "◆", "○", "△", "□", "◇"];

function range(values: readonly number[]): Range {
  const finite = values.filter(Number.isFinite);
  if (finite.length === 0) return { low: 0, high: 1 };
  const low = finite.reduce((a, b) => Math.min(a, b));
  const high = finite.reduce((a, b) => Math.max(a, b));
  return low === high ? { low: low - 0.5, high: high + 0.5 } : { low, high };
}

const all = (curves: readonly Curve[], ...axes: ("x" | "y" | "low" | "high")[]): number[] =>
  curves.flatMap((curve) => axes.flatMap((axis) => curve[axis] ?? []));

/** Round numbers across a range, about `count` of them. */
function ticks({ low, high }: Range, count: number): number[] {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const result: number[] = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i++) result.push(i * step);
  return result;
}

const short = (value: number): string => String(Number(value.toPrecision(3)));

/**
 * Curves as characters, for a terminal: one mark a curve, the y axis to the left, names below.
 *
 * @param columns Width of the whole in characters.
 */
export function terminalPlot(curves: readonly Curve[], labels: PlotLabels, columns = 80, rows = 14): string {
  const xs = range(all(curves, "x"));
  const ys = range(all(curves, "y"));
  const margin = Math.max(short(ys.low).length, short(ys.high).length) + 1;
  const width = Math.max(10, columns - margin - 2);
  const grid = Array.from({ length: rows }, () => new Array<string>(width).fill(" "));
  for (const [i, curve] of curves.entries()) {
    for (const [j, x] of curve.x.entries()) {
      const y = curve.y[j]!;
      if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
      const column = Math.round(((x - xs.low) / (xs.high - xs.low)) * (width - 1));
      const line = Math.round(((ys.high - y) / (ys.high - ys.low)) * (rows - 1));
      grid[line]![column] = marks[i % marks.length]!;
    }
  }
  const axis = (line: number): string => {
    if (line === 0) return short(ys.high);
    return line === rows - 1 ? short(ys.low) : "";
  };
  return [
    `${labels.title} (${labels.y})`,
    ...grid.map((cells, line) => `${axis(line).padStart(margin)}│${cells.join("").trimEnd()}`),
    `${" ".repeat(margin)}└${"─".repeat(width)}`,
    `${" ".repeat(margin + 1)}${short(xs.low)}${short(xs.high).padStart(width - short(xs.low).length)}  ${labels.x}`,
    curves.map((curve, i) => `${marks[i % marks.length]} ${curve.name}`).join("   "),
  ].join("\n");
}

/** Curves as a standalone SVG picture. */
export function svgPlot(curves: readonly Curve[], labels: PlotLabels): string {
  const [width, height, left, right, top, bottom] = [760, 440, 70, 170, 44, 54];
  const xs = range(all(curves, "x"));
  const ys = range(all(curves, "y", "low", "high"));
  const px = (x: number): number => left + ((x - xs.low) / (xs.high - xs.low)) * (width - left - right);
  const py = (y: number): number => top + ((ys.high - y) / (ys.high - ys.low)) * (height - top - bottom);
  const text = (x: number, y: number, content: string, more = ""): string =>
    `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${escapeXml(content)}</text>`;
  const lines = [
    ...ticks(xs, 6).flatMap((x) => [
      `<line x1="${px(x)}" x2="${px(x)}" y1="${top}" y2="${height - bottom}" class="grid"/>`,
      text(px(x), height - bottom + 18, short(x), 'text-anchor="middle"'),
    ]),
    ...ticks(ys, 6).flatMap((y) => [
      `<line x1="${left}" x2="${width - right}" y1="${py(y)}" y2="${py(y)}" class="grid"/>`,
      text(left - 8, py(y) + 4, short(y), 'text-anchor="end"'),
    ]),
  ];
  const drawn = curves.flatMap((curve, i) => {
    const through = (ys: readonly number[]): string[] =>
      curve.x
        .map((x, j) => [x, ys[j]!] as const)
        .filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y))
        .map(([x, y]) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`);
    const { low, high } = curve;
    const colour = colours[i % colours.length];
    const y = top + 14 + 20 * i;
    const band = low && high ? [...through(high), ...through(low).reverse()] : [];
    return [
      ...(band.length > 0
        ? [`<polygon points="${band.join(" ")}" fill="${colour}" fill-opacity="0.15" stroke="none"/>`]
        : []),
      `<polyline points="${through(curve.y).join(" ")}" fill="none" stroke="${colour}" stroke-width="2"/>`,
      `<line x1="${width - right + 14}" x2="${width - right + 36}" y1="${y}" y2="${y}" stroke="${colour}" stroke-width="3"/>`,
      text(width - right + 42, y + 4, curve.name),
    ];
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12">`,
    "<style>.grid{stroke:#ddd;stroke-width:1}text{fill:#222}</style>",
    `<rect width="${width}" height="${height}" fill="white"/>`,
    text(left, 24, labels.title, 'font-size="16"'),
    ...lines,
    ...drawn,
    text((left + width - right) / 2, height - 12, labels.x, 'text-anchor="middle"'),
    text(
      16,
      (top + height - bottom) / 2,
      labels.y,
      `text-anchor="middle" transform="rotate(-90 16 ${(top + height - bottom) / 2})"`,
    ),
    "</svg>",
    "",
  ].join("\n");
}

function escapeXml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}
