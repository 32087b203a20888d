import { access } from "node:fs/promises";

/** The name itself, or the first of name-2, name-3, … that no file or folder has. */
export async function freeFolder(name: string): Promise<string> {
  for (let i = 1; ; i++) {
    const path = i === 1 ? name : `${name}-${i}`;
    const isTaken = await access(path).then(
      () => true,
      () => false,
    );
    if (!isTaken) return path;
  }
}
