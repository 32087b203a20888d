/** Every mechanism × form × device × check, under a name of words: `npm test -- "gated-delta chunkwise wasm-b carry"`. */
import { after, test } from "node:test";
import { formNames } from "../../src/mechanisms/mechanism.ts";
import { mechanisms } from "../../src/mechanisms/registry.ts";
import { checks } from "./mechanisms/checks/all.ts";
import { formOf, title } from "./mechanisms/subject.ts";
import { closeTargets, targets } from "./targets.ts";

for (const target of await targets()) {
  for (const mechanism of mechanisms) {
    for (const name of formNames) {
      const form = formOf(mechanism, name);
      if (form === undefined) continue;
      const subject = { mechanism, name, form, target };
      for (const check of checks) {
        if (check.applies?.(subject) === false) continue;
        test(title(check, subject), () => check.run(subject));
      }
    }
  }
}

after(closeTargets);
