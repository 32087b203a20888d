/**
 * Names of the tests in files, without running them: the files are imported in one process where node:test only
 * writes names down, so that names made by loops over registries are found like those that stand in the text.
 */
import { fork } from "node:child_process";
import { createRequire, syncBuiltinESMExports } from "node:module";
import { fileURLToPath, pathToFileURL } from "node:url";

const here = fileURLToPath(import.meta.url);

/** What the listing process says of one file; no names where it could not be imported. */
interface Listed {
  readonly file: string;
  readonly names?: readonly string[];
}

/** Names by file. A file that cannot be imported on its own is missing. */
export async function testNames(files: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>> {
  const found = new Map<string, readonly string[]>();
  await new Promise<void>((resolve) => {
    const child = fork(here, [...files], { stdio: ["ignore", "ignore", "ignore", "ipc"] });
    child.on("message", ({ file, names }: Listed) => {
      if (names !== undefined) found.set(file, names);
    });
    child.on("close", () => resolve());
    child.on("error", () => resolve());
  });
  return found;
}

/** Puts a recorder in the place of node:test for everything that is imported afterwards. */
function listen(): { take: () => string[] } {
  const names: string[] = [];
  const record = (name: unknown): Promise<void> => {
    if (typeof name === "string") names.push(name);
    return Promise.resolve();
  };
  Object.assign(record, { skip: record, only: record });
  const nodeTest = createRequire(import.meta.url)("node:test") as Record<string, unknown>;
  for (const key of ["test", "it", "describe", "suite"]) nodeTest[key] = record;
  for (const key of ["before", "after", "beforeEach", "afterEach"]) nodeTest[key] = () => {};
  syncBuiltinESMExports();
  return { take: () => names.splice(0) };
}

async function list(files: readonly string[]): Promise<void> {
  const { take } = listen();
  for (const file of files) {
    const listed = await import(pathToFileURL(file).href).then(
      (): Listed => ({ file, names: take() }),
      (): Listed => ({ file }),
    );
    take();
    await new Promise((sent) => process.send?.(listed, sent));
  }
  // Devices and servers that files opened where they are imported would keep the process alive.
  process.exit();
}

// Not awaited here: a listed file may import this module, which would then wait for itself.
if (process.argv[1] === here) void list(process.argv.slice(2));
