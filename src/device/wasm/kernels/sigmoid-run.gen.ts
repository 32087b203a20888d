/** Writes sigmoids of a run of floats: four vectors side by side, what is left one at a time. */
import { ConstantTable, interleave, sigmoidSteps } from "./steps.ts";

/** The text of generated/sigmoid-run.as.ts. */
export function generate(): string {
  const table = new ConstantTable();
  const vectors = [0, 16, 32, 48];
  const steps = sigmoidSteps(table, "y$");
  return `// Written by sigmoid-run.gen.ts.
import { loadLanes, storeLanes } from "../lanes.as";
import { fma } from "../simd.as";

${table.text()}
function sigmoidOf(x0: v128): v128 {
${interleave(steps, [0], "  ")}
  return y0;
}

/** to = 1 / (1 + exp(−from)) for n floats, what sigmoid4 of sigmoid.as.ts gives; \`to\` may be \`from\`. */
export function sigmoidRun(from: usize, to: usize, n: i32): void {
  for (; n >= 16; n -= 16) {
${interleave(["const x$ = v128.load(from, $);", ...steps, "v128.store(to, y$, $);"], vectors, "    ")}
    from += 64;
    to += 64;
  }
  for (; n >= 4; n -= 4) {
    v128.store(to, sigmoidOf(v128.load(from)));
    from += 16;
    to += 16;
  }
  if (n > 0) storeLanes(to, sigmoidOf(loadLanes(from, n)), n);
}
`;
}
