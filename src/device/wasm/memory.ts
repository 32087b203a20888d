import { DeviceError } from "../../errors.ts";

/** WebAssembly counts memory in pages of 64 KiB. */
export const pageBytes = 65536;

/** Everything a 32-bit address reaches. */
const allPages = 65536;

/** A memory and what was learnt while asking for it. */
export interface OpenedMemory {
  readonly memory: WebAssembly.Memory;
  readonly shared: boolean;
  readonly maximumPages: number;
  readonly notes: readonly string[];
}

/**
 * Asks the system for one linear memory: as much room to grow as was wished, halving where that is refused.
 * Shared memory reserves its maximum at once, which some systems and small devices do not grant.
 */
export function openMemory(shared: boolean, initialBytes: number, maximumBytes: number): OpenedMemory {
  const wished = Math.min(allPages, Math.max(Math.floor(maximumBytes / pageBytes), 16));
  const initial = Math.min(wished, Math.max(Math.ceil(initialBytes / pageBytes), 16));
  let refusal: unknown;
  for (let maximum = wished; maximum >= Math.max(initial, 64) || maximum === wished; maximum >>= 1) {
    try {
      const memory = new WebAssembly.Memory({ initial, maximum, shared });
      const notes = maximum === wished ? [] : [belowNote(wished, maximum)];
      return { memory, shared, maximumPages: maximum, notes };
    } catch (error) {
      refusal = error;
    }
  }
  throw new DeviceError(
    `[openWasm] no memory: expected at least ${initial * pageBytes} bytes from the system, got ${refusal}`,
    "Ask for less with initialBytes and maximumBytes",
    { cause: refusal },
  );
}

function belowNote(wished: number, maximum: number): string {
  const mebibytes = (pages: number) => `${(pages * pageBytes) / 2 ** 20} MiB`;
  return `memory ends at ${mebibytes(maximum)}: the system refused ${mebibytes(wished)}`;
}

/**
 * Grows by at least `bytes`, by an eighth more where that is granted so that growing stays rare.
 * @returns Whether it grew; existing views then cover the old length only.
 */
export function growMemory(opened: OpenedMemory, bytes: number): boolean {
  const now = opened.memory.buffer.byteLength / pageBytes;
  const needed = Math.ceil(bytes / pageBytes);
  const room = opened.maximumPages - now;
  const generous = Math.min(room, Math.max(needed, now >> 3));
  for (const pages of generous > needed ? [generous, needed] : [needed]) {
    if (pages > room) continue;
    try {
      opened.memory.grow(pages);
      return true;
    } catch {
      // The system may refuse before the declared maximum; the smaller wish is tried, then the caller hears.
    }
  }
  return false;
}
