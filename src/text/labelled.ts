import { nodeFiles } from "../checkpoint/node-files.ts";
import { FormatError } from "../errors.ts";
import type { Random } from "../tensor/random.ts";
import { readDocuments, statusOf } from "./corpus.ts";

/** A text and the number of its label. */
export interface LabelledText {
  readonly text: string;
  readonly label: number;
}

/** Texts with their labels. */
export interface LabelledTexts {
  /** Names of the labels, sorted. */
  readonly labels: readonly string[];
  readonly texts: readonly LabelledText[];
}

/**
 * The texts of a folder whose sub-folders are labels: every file below `DIR/LABEL/`, or every line of a `.jsonl` file
 * there, is one text.
 *
 * @param longest Characters of a text that are kept; what follows is not read.
 * @throws ConfigError for a path that is not there; FormatError for fewer than two labels, a label without texts, and what
 * `readDocuments` throws.
 */
export async function readLabelled(path: string, longest = 1_000_000): Promise<LabelledTexts> {
  const files = await nodeFiles("labelled");
  const isFolder = (await statusOf(files, path)).isDirectory();
  const entries = isFolder ? await files.readdir(path, { withFileTypes: true }) : [];
  const labels = entries
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith("."))
    .map((entry) => entry.name)
    .sort();
  if (labels.length < 2) {
    throw new FormatError(
      `[labelled] ${path} has labels as sub-folders: expected two or more, got ${labels.length}`,
      "Put the texts of each label in a sub-folder of its own: DIR/LABEL/*.txt.",
    );
  }
  const texts: LabelledText[] = [];
  for (const [label, name] of labels.entries()) {
    const before = texts.length;
    let document: string | undefined;
    for await (const { text, ends } of readDocuments(`${path}/${name}`, { pieceLength: longest })) {
      document ??= text;
      if (!ends) continue;
      if (document.trim() !== "") texts.push({ text: document, label });
      document = undefined;
    }
    if (texts.length === before) throw new FormatError(`[labelled] ${path}/${name} holds no text`);
  }
  return { labels, texts };
}

/**
 * Cuts labelled things in two, the same share of every label held out, at least one of each on either side.
 *
 * @throws FormatError for a label of a single thing.
 */
export function holdOut<Item extends { readonly label: number }>(
  items: readonly Item[],
  share: number,
  random: Random,
): { readonly train: Item[]; readonly heldOut: Item[] } {
  const train: Item[] = [];
  const heldOut: Item[] = [];
  for (const label of new Set(items.map((item) => item.label))) {
    const own = items.filter((item) => item.label === label);
    if (own.length < 2)
      throw new FormatError(
        "[labelled] a label needs a text to learn from and one to be scored on: expected two or more, got one",
      );
    const order = random.permutation(own.length);
    const held = Math.min(own.length - 1, Math.max(1, Math.round(share * own.length)));
    for (const [rank, i] of order.entries()) (rank < held ? heldOut : train).push(own[i]!);
  }
  return { train, heldOut };
}
