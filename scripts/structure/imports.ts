/** Which file may import which: rooms one way, mechanisms never sideways, no cycles between files. */
import { posix } from "node:path";
import ts from "typescript";
import { engineRooms, roomOf, storeyOf } from "../rooms.ts";
import { isLibrary, isTest, type Problem, problemAt, type Rule } from "./source.ts";

interface Import {
  readonly target: string;
  readonly node: ts.Node;
  readonly isType: boolean;
}

/** Static imports and re-exports of other files of the repository. */
function* relativeImports(tree: ts.SourceFile): Generator<Import> {
  for (const node of tree.statements) {
    if (!ts.isImportDeclaration(node) && !ts.isExportDeclaration(node)) continue;
    const specifier = node.moduleSpecifier;
    if (specifier === undefined || !ts.isStringLiteral(specifier) || !specifier.text.startsWith("."))
      continue;
    const target = posix.normalize(posix.join(posix.dirname(tree.fileName), specifier.text));
    const isType = ts.isImportDeclaration(node)
      ? node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword
      : node.isTypeOnly;
    yield { target, node, isType };
  }
}

/** The mechanism that a file belongs to, if it belongs to one. */
function mechanismOf(path: string): string | undefined {
  const [, room, folder, file] = path.split("/");
  if (room !== "mechanisms" || file === undefined || engineRooms.includes(folder!)) return undefined;
  return folder;
}

function directionFault(from: string, to: string): string | undefined {
  const [lower, upper] = [roomOf(from), roomOf(to)];
  if (upper === "top") return lower === "top" ? undefined : `a room imports no entry of the package (${to})`;
  if (lower === "top" || storeyOf(upper) <= storeyOf(lower)) return undefined;
  return `${lower} lies below ${upper} and must not import it (${to})`;
}

function sidewaysFault(from: string, to: string): string | undefined {
  const [own, other] = [mechanismOf(from), mechanismOf(to)];
  if (other === undefined) return undefined;
  if (own !== undefined && own !== other) {
    return `mechanism ${own} imports mechanism ${other}: what two share lives in ${engineRooms.join(", ")}`;
  }
  const isEngine = own === undefined && roomOf(from) === "mechanisms" && from.split("/").length > 3;
  return isEngine ? `an engine room imports mechanism ${other}` : undefined;
}

/** Rooms that a mechanism's float64 reference is the judge of. */
const judged = ["/recurrence/", "/attention/", "src/ops/", "src/nn/", "src/autograd/", "src/device/"];

function referenceFault(from: string, imported: Import): string | undefined {
  if (mechanismOf(from) === undefined || !from.endsWith("/reference.ts") || imported.isType) return undefined;
  const fault = judged.some((part) => imported.target.includes(part));
  return fault ? `a reference imports only types from what it judges (${imported.target})` : undefined;
}

export const importDirection: Rule = function* (source, tree): Generator<Problem> {
  if (!source.path.startsWith("src/") || isTest(source.path)) return;
  for (const imported of relativeImports(tree)) {
    if (!imported.target.startsWith("src/")) {
      yield problemAt(tree, imported.node, `src imports nothing outside src (${imported.target})`);
      continue;
    }
    const faults = [
      directionFault(source.path, imported.target),
      sidewaysFault(source.path, imported.target),
      referenceFault(source.path, imported),
    ];
    for (const fault of faults) if (fault !== undefined) yield problemAt(tree, imported.node, fault);
  }
};

export const importForm: Rule = function* (source, tree): Generator<Problem> {
  if (source.path.endsWith(".as.ts")) return;
  for (const { target, node } of relativeImports(tree)) {
    if (!/\.(ts|json)$/.test(target)) yield problemAt(tree, node, `imports end in .ts (${target})`);
    if (isLibrary(source.path) && isTest(target))
      yield problemAt(tree, node, `source imports a test (${target})`);
  }
};

/** Examples show what users write, so they import the package by its name. */
export const examplesImportThePackage: Rule = function* (source, tree): Generator<Problem> {
  if (!source.path.startsWith("examples/")) return;
  for (const { target, node } of relativeImports(tree)) {
    if (target.startsWith("src/")) yield problemAt(tree, node, `examples import "linnet", not ${target}`);
  }
};

/** Cycles among values: types may point both ways, evaluation may not. */
export function importCycles(trees: ReadonlyMap<string, ts.SourceFile>): Problem[] {
  const problems: Problem[] = [];
  const done = new Set<string>();
  const visit = (path: string, chain: readonly string[]): void => {
    const start = chain.indexOf(path);
    const tree = trees.get(path);
    if (start >= 0) {
      const cycle = [...chain.slice(start), path].join(" -> ");
      problems.push({ path, line: 1, message: `files import each other: ${cycle}` });
    }
    if (start >= 0 || done.has(path) || tree === undefined) return;
    for (const { target, isType } of relativeImports(tree)) if (!isType) visit(target, [...chain, path]);
    done.add(path);
  };
  for (const path of trees.keys()) if (isLibrary(path)) visit(path, []);
  return problems;
}
