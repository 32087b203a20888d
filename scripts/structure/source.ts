/** One file of the repository as the structure rules see it, and what a rule says when it is broken. */
import ts from "typescript";

export interface Source {
  /** From the root of the repository, with forward slashes. */
  readonly path: string;
  readonly text: string;
}

export interface Problem {
  readonly path: string;
  readonly line: number;
  readonly message: string;
}

/** A rule looks at one file at a time and may know the names of all. */
export type Rule = (source: Source, tree: ts.SourceFile, paths: ReadonlySet<string>) => Iterable<Problem>;

export function parse(source: Source): ts.SourceFile {
  return ts.createSourceFile(source.path, source.text, ts.ScriptTarget.ES2022, true, ts.ScriptKind.TS);
}

export function problemAt(tree: ts.SourceFile, node: ts.Node, message: string): Problem {
  const line = tree.getLineAndCharacterOfPosition(node.getStart(tree)).line + 1;
  return { path: tree.fileName, line, message };
}

/** Every node below and including this one. */
export function* walk(node: ts.Node): Generator<ts.Node> {
  yield node;
  const children: ts.Node[] = [];
  ts.forEachChild(node, (child) => {
    children.push(child);
  });
  for (const child of children) yield* walk(child);
}

export function isTest(path: string): boolean {
  return path.endsWith(".test.ts") || path.startsWith("tests/");
}

export function isKernel(path: string): boolean {
  return path.endsWith(".as.ts") || path.endsWith(".gen.ts");
}

/** Source that users run: in `src/`, neither a test nor a kernel. */
export function isLibrary(path: string): boolean {
  return path.startsWith("src/") && !isTest(path) && !isKernel(path);
}
