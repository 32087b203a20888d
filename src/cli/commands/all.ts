import type { Command } from "commander";
import { bench } from "./bench.ts";
import { demo } from "./demo.ts";
import { doctor } from "./doctor.ts";
import { experiment } from "./experiment.ts";
import { generate } from "./generate.ts";
import { mechanismsCommand } from "./mechanisms.ts";
import { models } from "./models.ts";
import { train } from "./train.ts";

/** Every command of the command line, in the order of the help. */
export const commands: readonly ((program: Command) => void)[] = [
  demo,
  train,
  generate,
  experiment,
  models,
  mechanismsCommand,
  bench,
  doctor,
];
