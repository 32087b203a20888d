import { ConfigError } from "../errors.ts";
import { formatShape, type Shape } from "./shape.ts";

/** One argument of a call: its shape and the names its axes go by, such as `"B T H K"`. */
export interface NamedShape {
  readonly shape: Shape;
  readonly axes: string;
}

/** One axis of a pattern: its size is the product of `factors` and `literal`, and `plus` more. */
export interface Term {
  /** As errors print it, without its mark. */
  readonly label: string;
  /** The axis name where the term is nothing but a name. */
  readonly name: string | undefined;
  readonly factors: readonly string[];
  readonly literal: number;
  readonly plus: number;
  /** Any size fits. */
  readonly free: boolean;
  /** A size of 1 fits too. */
  readonly stretches: boolean;
  /** A size of 0 does not fit. */
  readonly nonEmpty: boolean;
}

/** The axes of one argument, read once per text. */
export interface Pattern {
  /** What the ellipsis stands for: nothing, or leading axes that must be equal, or that broadcast. */
  readonly leading: "none" | "equal" | "broadcast";
  readonly terms: readonly Term[];
}

/** The sign for leading axes of any number. */
export const ellipsis = "…";
const patterns = new Map<string, Pattern>();

function parseTerm(axes: string, text: string): Term {
  const match = /^([^+?!]+)(?:\+(\d+))?([?!]?)$/.exec(text);
  const parts = match?.[1]?.split("*") ?? [];
  const factors = parts.filter((part) => /^[A-Za-z][A-Za-z0-9]*$/.test(part) && !(part in {}));
  const literals = parts.filter((part) => /^\d+$/.test(part));
  if (!match || (text !== "_" && factors.length + literals.length !== parts.length)) {
    throw new ConfigError(
      `[solveAxes] axes cannot be read: expected names, sizes, products or _, got "${text}" in "${axes}"`,
    );
  }
  const plus = Number(match[2] ?? 0);
  const bare = factors.length === 1 && literals.length === 0 && plus === 0 && match[3] === "";
  return {
    label: text.replace(/[?!]$/, ""),
    name: bare ? factors[0] : undefined,
    factors,
    literal: literals.reduce((product, part) => product * Number(part), 1),
    plus,
    free: text === "_",
    stretches: match[3] === "?",
    nonEmpty: match[3] === "!",
  };
}

function parse(axes: string): Pattern {
  const tokens = axes.split(" ").filter((token) => token !== "");
  const first = tokens[0];
  const leading = first === ellipsis ? "equal" : first === `${ellipsis}?` ? "broadcast" : "none";
  const terms = tokens.slice(leading === "none" ? 0 : 1).map((token) => parseTerm(axes, token));
  return { leading, terms };
}

/** The pattern of an axes text; a text is parsed the first time only. */
export function patternOf(axes: string): Pattern {
  let pattern = patterns.get(axes);
  if (pattern === undefined) {
    pattern = parse(axes);
    patterns.set(axes, pattern);
  }
  return pattern;
}

/** A shape beside its axis names, `[B=2, T=64]`; leading axes, sizes and free axes stay bare. */
export function describeNamed({ shape, axes }: NamedShape): string {
  const { terms } = patternOf(axes);
  const covered = new Array<string>(shape.length - terms.length).fill("");
  return formatShape(shape, [
    ...covered,
    ...terms.map(({ label, factors }) => (factors.length > 0 ? label : "")),
  ]);
}

/** The axes as errors ask for them: `[B, T, H, K]`. */
export function describeAxes(axes: string): string {
  const { leading, terms } = patternOf(axes);
  return `[${[...(leading === "none" ? [] : [ellipsis]), ...terms.map(({ label }) => label)].join(", ")}]`;
}
