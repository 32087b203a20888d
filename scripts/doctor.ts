/** `npm run doctor`: what this machine offers Linnet and its developers; what is missing comes with the way to get it. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Finding, findingLines, good, machineFindings, missing, optional } from "../src/cli/findings.ts";
import { root } from "./rooms.ts";

type Lock = { readonly packages: Record<string, { readonly version?: string; readonly optional?: boolean }> };

function dependencies(): Finding {
  const installed = join(root, "node_modules/.package-lock.json");
  if (!existsSync(installed)) return missing("packages", "nothing is installed: npm ci");
  const read = (path: string): Lock => JSON.parse(readFileSync(path, "utf8")) as Lock;
  const have = read(installed).packages;
  const stale = Object.entries(read(join(root, "package-lock.json")).packages).filter(
    ([path, wanted]) => path !== "" && wanted.optional !== true && have[path]?.version !== wanted.version,
  );
  if (stale.length === 0) return good("packages", "as package-lock.json says");
  return missing("packages", `${stale.length} differ from package-lock.json: npm ci`);
}

function kernels(): Finding {
  const built = existsSync(join(root, "src/device/wasm/generated/stamp.txt"));
  return built ? good("kernels", "built") : missing("kernels", "not built yet: npm run kernels");
}

function chromium(): Finding {
  const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  const found = [process.env["LINNET_CHROMIUM"], ...places].find((path) => path && existsSync(path));
  if (found) return good("chromium", found);
  return optional(
    "chromium",
    "browser tests are skipped: apt-get install chromium, or set LINNET_CHROMIUM to one",
  );
}

function peers(): Finding {
  const manifest = join(root, "bench/package.json");
  if (!existsSync(manifest)) return optional("peers", "no benchmark names any");
  const names = Object.keys(
    (JSON.parse(readFileSync(manifest, "utf8")) as { dependencies?: object }).dependencies ?? {},
  );
  const absent = names.filter((name) => !existsSync(join(root, "bench/node_modules", name)));
  if (absent.length === 0) return good("peers", names.join(", "));
  return optional("peers", `benchmarks run without ${absent.join(", ")}: npm run bench:peers`);
}

const findings = [...(await machineFindings()), dependencies(), kernels(), chromium(), peers()];
console.log(findingLines(findings).join("\n"));
process.exitCode = findings.some(({ state }) => state === "missing") ? 1 : 0;
