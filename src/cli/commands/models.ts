import type { Command } from "commander";
import { presets } from "../../models/presets/index.ts";
import { modelSize } from "../../models/size.ts";
import { formatBytes, formatCount, table } from "../../report/table.ts";
import { positiveInteger } from "../flags.ts";

/** `linnet models`: the presets and what they take. */
export function models(program: Command): void {
  program
    .command("models")
    .description("List the published models that are known, with their sizes.")
    .option("--context <tokens>", "context for the bytes of caches", positiveInteger, 8192)
    .option("--tiny", "the small models of the same shapes")
    .option("--json", "print JSON")
    .addHelpText("after", "\nExample:\n  linnet models --context 131072")
    .action((options: { readonly context: number; readonly tiny?: boolean; readonly json?: boolean }) => {
      const rows = presets.map((preset) => {
        const config = options.tiny ? preset.tiny : preset.published;
        const size = modelSize(config);
        return {
          ...{ id: preset.id, title: preset.title, layers: config.layers, width: config.width, ...size },
          cacheBytes: size.cacheBytesPerToken * options.context,
        };
      });
      if (options.json) {
        console.log(JSON.stringify({ context: options.context, rows }, null, 2));
        return;
      }
      console.log(
        table(rows, [
          { title: "id", value: (row) => row.id },
          { title: "layers", value: (row) => row.layers },
          { title: "width", value: (row) => row.width },
          { title: "weights", value: (row) => formatCount(row.parameters), align: "right" },
          { title: "float32", value: (row) => formatBytes(row.weightBytes), align: "right" },
          { title: "state", value: (row) => formatBytes(row.stateBytes), align: "right" },
          {
            title: `cache at ${options.context}`,
            value: (row) => formatBytes(row.cacheBytes),
            align: "right",
          },
        ]),
      );
    });
}
