/** What the language may be used for: sizes, exports, documentation, and nothing that runs at import. */
import ts from "typescript";
import { isKernel, isLibrary, isTest, type Problem, problemAt, type Rule, walk } from "./source.ts";

const fileLimit = 500;
const exampleLimit = 60;
const functionLimit = 60;

export const fileSize: Rule = function* (source): Generator<Problem> {
  const lines = source.text.split("\n").length - 1;
  const limit = source.path.startsWith("examples/") ? exampleLimit : fileLimit;
  const message = `${lines} lines: a file here has at most ${limit}`;
  if (lines > limit) yield { path: source.path, line: lines, message };
};

function functionName(node: ts.Node, tree: ts.SourceFile): string {
  const named = node as { readonly name?: ts.Node };
  return named.name?.getText(tree) ?? "a function";
}

/** Tests hold their cases in one closure, so only functions that are named or belong to the library count. */
export const functionSize: Rule = function* (source, tree): Generator<Problem> {
  for (const node of walk(tree)) {
    if (!ts.isFunctionLike(node) || !("body" in node) || node.body === undefined) continue;
    if (isTest(source.path) && ts.isArrowFunction(node)) continue;
    const first = tree.getLineAndCharacterOfPosition(node.getStart(tree)).line;
    const lines = tree.getLineAndCharacterOfPosition(node.getEnd()).line - first + 1;
    if (lines > functionLimit) {
      const name = functionName(node, tree);
      yield problemAt(tree, node, `${name} has ${lines} lines: a function has at most ${functionLimit}`);
    }
  }
};

const forbidden = new Map<ts.SyntaxKind, string>([
  [ts.SyntaxKind.AnyKeyword, "any: say what it is, or unknown"],
  [ts.SyntaxKind.EnumDeclaration, "enum: a union of strings does it"],
  [ts.SyntaxKind.ExportAssignment, "default export: export it by its name"],
]);

export const forbiddenSyntax: Rule = function* (source, tree): Generator<Problem> {
  if (source.path.endsWith(".as.ts")) return;
  for (const node of walk(tree)) {
    const message = forbidden.get(node.kind);
    if (message !== undefined) yield problemAt(tree, node, message);
    if (ts.isModuleDeclaration(node) && ts.isIdentifier(node.name) && node.name.text !== "global") {
      yield problemAt(tree, node, "namespace: a module does it");
    }
  }
};

function modifiers(node: ts.Node): readonly ts.SyntaxKind[] {
  const found = ts.canHaveModifiers(node) ? ts.getModifiers(node) : undefined;
  return found?.map((modifier) => modifier.kind) ?? [];
}

/** A type that only names the shape of one thing in its file still deserves its sentence when it is exported. */
export const exportsDocumented: Rule = function* (source, tree): Generator<Problem> {
  if (!isLibrary(source.path) || source.path.startsWith("src/cli/")) return;
  const seen = new Set<string>();
  for (const node of tree.statements) {
    if (!modifiers(node).includes(ts.SyntaxKind.ExportKeyword)) continue;
    const name = ts.isVariableStatement(node)
      ? node.declarationList.declarations[0]!.name.getText(tree)
      : functionName(node, tree);
    const documented = ts.getJSDocCommentsAndTags(node).length > 0 || seen.has(name);
    seen.add(name);
    if (!documented) yield problemAt(tree, node, `${name} is exported without a sentence of documentation`);
  }
};

/** Importing Linnet declares things and starts nothing. */
export const nothingAtImport: Rule = function* (source, tree): Generator<Problem> {
  if (!isLibrary(source.path) || source.path === "src/cli/main.ts") return;
  for (const node of tree.statements) {
    if (ts.isExpressionStatement(node)) yield problemAt(tree, node, "runs when it is imported");
    const waits = [...walk(node)].some(
      (inner) => ts.isAwaitExpression(inner) && !ts.findAncestor(inner, ts.isFunctionLike),
    );
    if (waits) yield problemAt(tree, node, "awaits at the top level");
    if (ts.isImportDeclaration(node) && node.importClause === undefined) {
      yield problemAt(tree, node, "an import for its side effects");
    }
  }
};

const plainErrors = ["Error", "TypeError", "RangeError"];

/** Users match on codes, so what they can cause is one of the classes in errors.ts. */
export const errorsHaveCodes: Rule = function* (source, tree): Generator<Problem> {
  if (!isLibrary(source.path)) return;
  for (const node of walk(tree)) {
    if (!ts.isThrowStatement(node) || !ts.isNewExpression(node.expression)) continue;
    const name = node.expression.expression.getText(tree);
    if (plainErrors.includes(name)) yield problemAt(tree, node, `throws ${name}: use a class of errors.ts`);
  }
};

/** Kernels share their memory with every thread: what they declare at the top is constant. */
export const kernelsKeepNoState: Rule = function* (source, tree): Generator<Problem> {
  if (!isKernel(source.path) || source.path.endsWith("/runtime.as.ts")) return;
  for (const node of tree.statements) {
    if (ts.isVariableStatement(node) && (node.declarationList.flags & ts.NodeFlags.Const) === 0) {
      yield problemAt(tree, node, "a kernel's file keeps no state between calls: declare it const");
    }
  }
};
