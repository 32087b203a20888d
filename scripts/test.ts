/**
 * `npm test -- "words"`: runs every test file in a process of its own. Words select cases whose name holds all of
 * them in any order, and only files that have one run; a word with a slash selects files instead. Ends with the closing
 * lines of Node's test runner.
 */
import { readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { dirname, join, relative, resolve, sep } from "node:path";
import { Transform } from "node:stream";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { fileURLToPath } from "node:url";
import { buildKernels } from "./build-kernels.ts";
import { testNames } from "./test-names.ts";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
/** A file that takes longer hangs; the whole suite is a matter of minutes. */
const fileTimeout = 10 * 60_000;

interface TestEvent {
  readonly type: string;
  readonly data: { readonly name?: string; readonly skip?: string | boolean; readonly message?: string };
}

function testFiles(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".test.ts"))
    .map((path) => join(root, folder, path))
    .sort();
}

/** A pattern that holds for a name with every word in it, in any order. */
function allWords(words: readonly string[]): RegExp {
  const ahead = words.map((word) => `(?=.*${word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")})`);
  return new RegExp(`^${ahead.join("")}`, "i");
}

/** Counts what ran and hides what the words excluded: runners report it, by case or by file. */
function tally(filtered: boolean): { stream: Transform; ran: () => number } {
  let ran = 0;
  /** Announced, and not yet known to be shown. */
  const begun: TestEvent[] = [];
  const stream = new Transform({
    objectMode: true,
    transform(event: TestEvent, _encoding, done) {
      const { type, data } = event;
      const isEnd = type === "test:pass" || type === "test:fail";
      const isFile = data.name?.endsWith(".test.ts") === true;
      const unmatched = typeof data.skip === "string" && data.skip.includes("does not match");
      if (type === "test:fail") process.exitCode = 1;
      if (type === "test:start") begun.push(event);
      else if (filtered && type === "test:pass" && (isFile || unmatched)) begun.pop();
      else {
        if (isEnd) for (const start of begun.splice(0)) this.push(start);
        if (isEnd && !isFile) ran++;
        this.push(event);
      }
      done();
    },
  });
  return { stream, ran: () => ran };
}

/** The files with a case that the words select, and those whose names could not be listed. */
async function matching(files: readonly string[], pattern: RegExp): Promise<string[]> {
  const names = await testNames(files);
  return files.filter((file) => names.get(file)?.some((name) => pattern.test(name)) ?? true);
}

function refuse(message: string): void {
  console.error(message);
  process.exitCode = 1;
}

async function main(): Promise<void> {
  const words = process.argv.slice(2).flatMap((argument) => argument.split(/\s+/).filter(Boolean));
  const paths = words.filter((word) => word.includes("/"));
  const names = words.filter((word) => !word.includes("/"));
  const all = [...testFiles("src"), ...testFiles("tests")].filter((file) => {
    const path = relative(root, file).replaceAll(sep, "/");
    return paths.length === 0 || paths.some((part) => path.includes(part));
  });
  if (all.length === 0) return refuse(`no test file lies under ${paths.join(" or ")}`);
  const pattern = allWords(names);
  const files = names.length > 0 ? await matching(all, pattern) : all;
  const missed = `no case has all of these words in its name: ${names.join(" ")}`;
  if (files.length === 0) return refuse(missed);
  const { stream, ran } = tally(names.length > 0);
  const events = run({
    files,
    concurrency: availableParallelism(),
    timeout: fileTimeout,
    ...(names.length > 0 ? { testNamePatterns: [pattern] } : {}),
  });
  const report = events.pipe(stream).pipe(new spec());
  report.on("end", () => {
    if (ran() === 0) refuse(missed);
  });
  report.pipe(process.stdout);
}

await buildKernels((line) => console.log(line));
await main();
