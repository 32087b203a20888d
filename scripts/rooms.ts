/** The rooms of `src/`, lowest first, and the public subpaths that follow from those that exist. */
import { existsSync, readdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");

/** A room imports from rooms of its own storey or of those before it, never from one after it. */
export const storeys: readonly (readonly string[])[] = [
  ["errors"],
  ["tensor"],
  ["device"],
  ["autograd"],
  ["ops"],
  ["nn"],
  ["mechanisms"],
  ["models"],
  ["checkpoint", "text", "train", "generate"],
  ["tasks", "analysis", "report"],
  ["serve"],
  ["cli"],
];

export const rooms: readonly string[] = storeys.flat();

/** How high a room lies. */
export function storeyOf(room: string): number {
  return storeys.findIndex((storey) => storey.includes(room));
}

/** Folders of `mechanisms/` that all mechanisms may share; every other folder there is one mechanism. */
export const engineRooms: readonly string[] = ["feature-maps", "recurrence", "attention"];

/** Where a file of `src/` stands: its room, or "top" for the entries that may import any room. */
export function roomOf(path: string): string {
  const name = path.split("/")[1]!.replace(/\.ts$/, "");
  return rooms.includes(name) ? name : "top";
}

/** One entry of the package: its subpath, the source behind it, and its path in `dist/` without an ending. */
export interface Entry {
  readonly subpath: string;
  readonly source: string;
  readonly output: string;
}

/** `src/index.ts`, the other files beside it, and `index.ts` of every room but the command line. */
export function entries(): Entry[] {
  const top = readdirSync(join(root, "src"))
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts") && roomOf(`src/${name}`) === "top")
    .map((name) => name.slice(0, -3));
  const folders = rooms.filter((room) => room !== "cli" && existsSync(join(root, "src", room, "index.ts")));
  return [
    ...top.map((name) => ({
      subpath: name === "index" ? "." : `./${name}`,
      source: `src/${name}.ts`,
      output: name,
    })),
    ...folders.map((room) => ({
      subpath: `./${room}`,
      source: `src/${room}/index.ts`,
      output: `${room}/index`,
    })),
  ].sort((a, b) => (a.subpath < b.subpath ? -1 : 1));
}

/** The command line's program, once it exists. */
export function program(): string | undefined {
  return existsSync(join(root, "src/cli/main.ts")) ? "src/cli/main.ts" : undefined;
}
