import { readFile, stat } from "node:fs/promises";
import { ConfigError, FormatError } from "../errors.ts";
import { bytePair } from "../text/byte-pair.ts";
import { trainBytePair } from "../text/byte-pair-train.ts";
import { bytes } from "../text/bytes.ts";
import { characters } from "../text/characters.ts";
import { huggingFaceTokenizer } from "../text/hugging-face.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

/** The tokenizer that `--tokenizer` asks for: of a kind, made for the text, or published as a `tokenizer.json`. */
export async function tokenizerOf(kind: string, text: string): Promise<Tokenizer> {
  if (kind === "bytes") return bytes();
  if (kind === "characters") return characters(text);
  const size = /^bpe:(\d+)$/.exec(kind)?.[1];
  if (size !== undefined) return bytePair(trainBytePair([text], Number(size)));
  const isFolder = await stat(kind).then(
    (status) => status.isDirectory(),
    () => false,
  );
  if (isFolder) return published(`${kind.replace(/[\\/]+$/, "")}/tokenizer.json`);
  if (kind.endsWith(".json")) return published(kind);
  throw new ConfigError(
    `[train] unknown tokenizer "${kind}": expected bytes, characters, bpe:VOCABULARY such as bpe:2048, or a tokenizer.json`,
  );
}

async function published(path: string): Promise<Tokenizer> {
  const config = path.replace(/tokenizer\.json$/, "tokenizer_config.json");
  const besides = config === path ? "{}" : await readFile(config, "utf8").catch(() => "{}");
  const text = await readFile(path, "utf8").catch((cause: Error) => {
    throw new FormatError(`[train] ${path} cannot be read: ${cause.message}`, undefined, { cause });
  });
  try {
    return await huggingFaceTokenizer(JSON.parse(text), JSON.parse(besides));
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
    throw new FormatError(`[train] ${path} is not JSON`, undefined, { cause });
  }
}
