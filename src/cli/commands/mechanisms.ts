import type { Command } from "commander";
import { type FormName, formNames, type Mechanism } from "../../mechanisms/mechanism.ts";
import { mechanisms } from "../../mechanisms/registry.ts";
import { layerBytes } from "../../models/size.ts";
import { formatBytes, table } from "../../report/table.ts";
import { positiveInteger } from "../flags.ts";

interface Options {
  readonly width: number;
  readonly heads: number;
  readonly context: number;
  readonly json?: boolean;
}

const letters: Readonly<Record<FormName, string>> = {
  recurrent: "r",
  step: "s",
  chunkwise: "c",
  parallel: "p",
};

/** `linnet mechanisms`: what there is, which forms it has and what it carries. */
export function mechanismsCommand(program: Command): void {
  program
    .command("mechanisms")
    .description("List the mechanisms: traits, forms, and the bytes a layer carries.")
    .option("--width <number>", "width of the layer whose bytes are shown", positiveInteger, 1024)
    .option("--heads <number>", "its heads", positiveInteger, 8)
    .option("--context <tokens>", "context for the bytes of caches", positiveInteger, 8192)
    .option("--json", "print JSON")
    .addHelpText(
      "after",
      "\nExamples:\n  linnet mechanisms\n  linnet mechanisms --width 2048 --context 131072",
    )
    .action((options: Options) => {
      const rows = mechanisms.map((mechanism) => rowOf(mechanism, options));
      if (options.json) {
        const { width, heads, context } = options;
        console.log(JSON.stringify({ width, heads, context, rows }, null, 2));
        return;
      }
      console.log(
        table(rows, [
          { title: "id", value: (row) => row.id },
          { title: "decay", value: (row) => row.traits.decay },
          { title: "write", value: (row) => row.traits.write },
          { title: "state", value: (row) => bytesOr(row.stateBytes), align: "right" },
          { title: "cache", value: (row) => bytesOr(row.cacheBytes), align: "right" },
          { title: "forms", value: (row) => row.forms.map((form) => letters[form]).join("") },
          { title: "source", value: (row) => row.source },
        ]),
      );
      console.log(
        `\nstate and cache: a layer of width ${options.width} with ${options.heads} heads, a sequence of ${options.context} tokens\nforms: recurrent, step, chunkwise, parallel`,
      );
    });
}

function rowOf({ id, title, traits, forms, sources, layer }: Mechanism, { width, heads, context }: Options) {
  const { stateBytes, cacheBytesPerToken } = layerBytes(layer({ width, heads }));
  return {
    ...{ id, title, traits, source: sources[0]?.id ?? "" },
    ...{ stateBytes, cacheBytesPerToken, cacheBytes: cacheBytesPerToken * context },
    forms: formNames.filter((name) => typeof forms[name] === "function"),
  };
}

const bytesOr = (bytes: number): string => (bytes === 0 ? "–" : formatBytes(bytes));
