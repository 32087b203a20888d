import { FormatError, UnsupportedError } from "../../../errors.ts";

/** `config.json` as it was read. */
export type ConfigJson = Readonly<Record<string, unknown>>;

/**
 * Reads a `config.json`, also with the `Infinity` and `NaN` that Python writes and JSON has not.
 *
 * @throws FormatError for text that is no JSON object.
 */
export function parseConfig(text: string, file: string): ConfigJson {
  // Strings are matched first, so that words inside them stay.
  const standard = text.replace(/"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g, (found) =>
    found.startsWith('"') ? found : `{"__float__":"${found}"}`,
  );
  let value: unknown;
  try {
    value = JSON.parse(standard);
  } catch (cause) {
    throw new FormatError(
      `[config] ${file} is not JSON: expected an object, got ${(cause as Error).message}`,
      undefined,
      {
        cause,
      },
    );
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as ConfigJson;
  throw new FormatError(`[config] ${file} is no configuration: expected a JSON object, got another value`);
}

/** The text of a `config.json`, its infinities as Python reads them. */
export function formatConfig(config: ConfigJson): string {
  const text = JSON.stringify(
    config,
    (_, value) =>
      typeof value === "number" && !Number.isFinite(value) ? { __float__: String(value) } : value,
    2,
  );
  return `${text.replace(/\{\s*"__float__":\s*"(-?Infinity|NaN)"\s*\}/g, "$1")}\n`;
}

/** The entries of a configuration by key, each with the kind of value it must have. */
export class ConfigReader {
  readonly json: ConfigJson;
  readonly #who: string;

  constructor(json: ConfigJson, who: string) {
    this.json = json;
    this.#who = who;
  }

  /** A whole number >= 1. */
  count(key: string, usual?: number): number {
    return this.number(key, usual, (value) => Number.isInteger(value) && value >= 1, "a whole number >= 1");
  }

  /** A number; infinite ones too, in either way of writing them. */
  number(
    key: string,
    usual?: number,
    admits: (value: number) => boolean = () => true,
    what = "a number",
  ): number {
    const value = plain(this.json[key]) ?? usual;
    if (typeof value === "number" && admits(value)) return value;
    throw this.#refusal(key, what, value);
  }

  flag(key: string, usual: boolean): boolean {
    const value = this.json[key] ?? usual;
    if (typeof value === "boolean") return value;
    throw this.#refusal(key, "true or false", value);
  }

  /** A list of numbers or words. */
  list<Item extends number | string>(key: string, kind: "number" | "string"): readonly Item[] | undefined {
    const value = this.json[key];
    if (value === undefined || value === null) return undefined;
    if (Array.isArray(value)) {
      const items = value.map(plain);
      if (items.every((item) => typeof item === kind)) return items as Item[];
    }
    throw this.#refusal(key, `a list of ${kind}s`, value);
  }

  /** An object inside the configuration; empty where it is absent. */
  inner(key: string): ConfigReader {
    const value = this.json[key] ?? {};
    if (typeof value === "object" && !Array.isArray(value)) {
      return new ConfigReader(value as ConfigJson, `${this.#who} ${key}`);
    }
    throw this.#refusal(key, "an object", value);
  }

  /** Refuses what a model of this format may be and the layers here are not. */
  only(key: string, ...allowed: readonly (string | number | boolean | null)[]): void {
    const value = this.json[key] ?? null;
    if (value === null || allowed.some((one) => one === value)) return;
    throw new UnsupportedError(
      `[${this.#who}] ${key} is not supported: expected ${allowed.map(String).join(" or ") || "none"}, got ${JSON.stringify(value)}`,
    );
  }

  #refusal(key: string, what: string, value: unknown): FormatError {
    const got = value === undefined || value === null ? "nothing" : JSON.stringify(value).slice(0, 80);
    return new FormatError(`[${this.#who}] ${key} makes no model: expected ${what}, got ${got}`);
  }
}

function plain(value: unknown): unknown {
  if (value === null) return undefined;
  const float = typeof value === "object" ? (value as { __float__?: unknown }).__float__ : undefined;
  return typeof float === "string" ? Number(float) : value;
}
