import type { Command } from "commander";
import { formNames } from "../../mechanisms/mechanism.ts";
import { mechanisms } from "../../mechanisms/registry.ts";
import { table } from "../../report/table.ts";

/** `linnet mechanisms`: what there is and which forms it has. */
export function mechanismsCommand(program: Command): void {
  program
    .command("mechanisms")
    .description("List the mechanisms, their traits and forms.")
    .option("--json", "print JSON")
    .action((options: { readonly json?: boolean }) => {
      const rows = mechanisms.map(({ id, title, traits, forms, sources }) => ({
        ...{ id, title, traits },
        source: sources[0]?.id ?? "",
        forms: formNames.filter((name) => typeof forms[name] === "function"),
      }));
      if (options.json) {
        console.log(JSON.stringify({ rows }, null, 2));
        return;
      }
      console.log(
        table(rows, [
          { title: "id", value: (row) => row.id },
          { title: "decay", value: (row) => row.traits.decay },
          { title: "write", value: (row) => row.traits.write },
          { title: "state", value: (row) => (row.traits.constantState ? "fixed" : "grows") },
          { title: "source", value: (row) => row.source },
          { title: "forms", value: (row) => row.forms.join(" ") },
        ]),
      );
    });
}
