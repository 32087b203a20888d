import type { Command } from "commander";
import { bench } from "./bench.ts";
import { classify } from "./classify.ts";
import { convert } from "./convert.ts";
import { demo } from "./demo.ts";
import { doctor } from "./doctor.ts";
import { draw } from "./draw.ts";
import { experiment } from "./experiment.ts";
import { generate } from "./generate.ts";
import { info } from "./info.ts";
import { mechanismsCommand } from "./mechanisms.ts";
import { models } from "./models.ts";
import { train } from "./train.ts";
import { verify } from "./verify.ts";

/** Every command of the command line, in the order of the help. */
export const commands: readonly ((program: Command) => void)[] = [
  demo,
  train,
  generate,
  draw,
  classify,
  info,
  convert,
  experiment,
  models,
  mechanismsCommand,
  verify,
  bench,
  doctor,
];
