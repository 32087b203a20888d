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
    .exitOverride();
  for (const register of commands) register(linnet);
  return linnet;
}

async function main(): Promise<void> {
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
