#!/usr/bin/env node
import { Command, CommanderError } from "commander";
import { commands } from "./commands/all.ts";
import { describeError, exitCodeOf, exitCodes } from "./exit.ts";
import { version } from "./version.ts";

/** Builds the whole command line. */
export function program(): Command {
  const linnet = new Command("linnet")
    .description(
      "Linear attention: train and run sequence models whose cost per token does not grow with the context.",
    )
    .version(version)
    // An option behind a command's name is that command's, also where the one above has it too.
    .enablePositionalOptions()
    .showHelpAfterError("(linnet COMMAND --help says more)")
    .addHelpText(
      "after",
      `
Examples:
  linnet demo                            learns from a book in 90 seconds
  linnet train book.txt                  trains on a text of your own
  linnet generate runs/book --prompt "Once"
  linnet experiment mqar                 compares mechanisms on one task

Exit status: 0 done, 1 failed, 2 bad arguments, 130 interrupted.`,
    )
    .exitOverride();
  for (const register of commands) register(linnet);
  return linnet;
}

async function main(): Promise<void> {
  // A reader that has seen enough, such as head, closes the pipe: there is nobody left to tell.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));
  try {
    await program().parseAsync();
  } catch (error) {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? 0 : exitCodes.usage;
      return;
    }
    console.error(describeError(error));
    process.exitCode = exitCodeOf(error);
  }
}

void main();
