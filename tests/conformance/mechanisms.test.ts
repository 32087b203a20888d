/** Every mechanism × form × device × check, under a name of words: `npm test -- "gated-delta chunkwise wasm-b carry"`. */
import { after, test } from "node:test";
import { formNames } from "../../src/mechanisms/mechanism.ts";
import { mechanisms } from "../../src/mechanisms/registry.ts";
import { checks } from "./mechanisms/checks/all.ts";
import { formOf, title } from "./mechanisms/subject.ts";
import { closeTargets, targets } from "./targets.ts";

/** What does not hold yet, by mechanism and check, with what is known of it; the run prints each as skipped. */
const open: Readonly<Record<string, string>> = {
  "sliding-window gradients":
    "on wasm the gradient of q behind a carried state is not that of float64; cause unknown",
  "lsh gradients": "float32 gradients of v are off by 4e-4 on the host; cause unknown",
};

for (const target of await targets()) {
  for (const mechanism of mechanisms) {
    for (const formName of formNames) {
      const form = formOf(mechanism, formName);
      if (form === undefined) continue;
      const subject = { mechanism, name: formName, form, target };
      for (const check of checks) {
        if (check.applies?.(subject) === false) continue;
        const name = title(check, subject);
        const reason = open[`${mechanism.id} ${name.split(" ").at(-1)}`];
        test(name, reason === undefined ? {} : { skip: reason }, () => check.run(subject));
      }
    }
  }
}

after(closeTargets);
