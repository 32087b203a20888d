import pc from "picocolors";
import { isLinnetError } from "../errors.ts";

/** Exit statuses of the command line. */
export const exitCodes = { failed: 1, usage: 2, interrupted: 130 } as const;

/** The status that an error ends the process with: 2 for arguments that make no sense, 130 after Ctrl-C, else 1. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof Error && error.name === "AbortError") return exitCodes.interrupted;
  return isLinnetError(error) && error.code === "E_CONFIG" ? exitCodes.usage : exitCodes.failed;
}

/** What a person sees of an error: the message of one of ours, the stack of one nobody foresaw. */
export function describeError(error: unknown): string {
  if (error instanceof Error && error.name === "AbortError") return "interrupted";
  if (isLinnetError(error)) return `${pc.red("error")} ${error.message}`;
  return `${pc.red("error")} ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
}

/** Runs a command with a signal that Ctrl-C and SIGTERM abort; a second Ctrl-C ends at once. */
export async function withInterrupt(run: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const controller = new AbortController();
  const stop = (): void => {
    if (controller.signal.aborted) process.exit(exitCodes.interrupted);
    controller.abort();
  };
  process.on("SIGINT", stop);
  process.on("SIGTERM", stop);
  try {
    await run(controller.signal);
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
}
