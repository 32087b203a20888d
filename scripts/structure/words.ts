/** Names and words: what files are called, what text must not hold, what shared code must not ask. */
import ts from "typescript";
import { engineRooms } from "../rooms.ts";
import { isLibrary, type Problem, problemAt, type Rule, walk } from "./source.ts";

const vagueNames = /^(utils?|helpers?|common|misc|shared|stuff|base|lib)$/;

export const fileName: Rule = function* (source): Generator<Problem> {
  const parts = source.path.split("/");
  for (const part of parts) {
    const name = part.replace(/(\.(test|as|gen|d))?\.(ts|md)$/, "");
    if (vagueNames.test(name)) {
      yield { path: source.path, line: 1, message: `"${name}" says nothing: name the subject` };
    }
  }
  const file = parts[parts.length - 1]!;
  if (file.endsWith(".ts") && !/^[a-z0-9]+(-[a-z0-9]+)*(\.(test|as|gen|d))?\.ts$/.test(file)) {
    yield { path: source.path, line: 1, message: `"${file}" is not kebab-case` };
  }
};

/** Parts of a pattern are joined at run time, so that this file does not hold what it looks for. */
const pattern = (...parts: string[]): RegExp => new RegExp(parts.join(""), "i");
const forbiddenText: readonly (readonly [RegExp, string])[] = [
  [
    pattern("\\b(TO", "DO|FIX", "ME|XX", "X|HA", "CK)\\b(?!-)"),
    "do it, or write it down where it will be found",
  ],
  [pattern("(^|[\\s\"'`(])/(wo", "rk|ro", "ot|ho", "me|Us", "ers)/"), "a path of one machine"],
  [
    pattern("\\bDES", "IGN\\.md|\\bDES", "IGN §|sha", "red/(reference|golden|DES", "IGN)"),
    "not in the repository",
  ],
  [
    pattern("\\b(sub-?)?(?<!user-)ag", "ents?\\b|\\bissue #?\\d+\\b|\\bpull request #?\\d+"),
    "a word of the process",
  ],
];

export const forbiddenWords: Rule = function* (source): Generator<Problem> {
  for (const [i, line] of source.text.split("\n").entries()) {
    for (const [words, reason] of forbiddenText) {
      const found = words.exec(line);
      if (found) yield { path: source.path, line: i + 1, message: `"${found[0].trim()}": ${reason}` };
    }
  }
};

/** Names of mechanisms that are also plain words of the trade, so that a comparison proves nothing. */
const plainWords = ["linear", "delta", "softmax", "cosine"];

/** Shared code asks a trait that a mechanism declares, never its name. */
export const mechanismsUnnamed: Rule = function* (source, tree, paths): Generator<Problem> {
  const [, room, folder, file] = source.path.split("/");
  const isMechanism = room === "mechanisms" && file !== undefined && !engineRooms.includes(folder!);
  if (!isLibrary(source.path) || isMechanism || source.path.includes("/presets")) return;
  for (const node of walk(tree)) {
    if (!ts.isStringLiteralLike(node) || plainWords.includes(node.text)) continue;
    const isId = paths.has(`src/mechanisms/${node.text}/index.ts`) && !engineRooms.includes(node.text);
    if (isId && isQuestion(node.parent)) {
      yield problemAt(tree, node, `asks for "${node.text}" by name: ask a trait it declares`);
    }
  }
};

function isQuestion(node: ts.Node): boolean {
  if (ts.isCaseClause(node)) return true;
  if (!ts.isBinaryExpression(node)) return false;
  const text = node.operatorToken.getText();
  return ["===", "!==", "==", "!="].includes(text);
}
