/** `npm run doctor`: what this machine offers Linnet and its developers; what is missing comes with the way to get it. */
import { existsSync, readFileSync } from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { Worker } from "node:worker_threads";
import { root } from "./rooms.ts";

interface Finding {
  readonly state: "good" | "missing" | "optional";
  readonly subject: string;
  readonly words: string;
}

const good = (subject: string, words: string): Finding => ({ state: "good", subject, words });
const missing = (subject: string, words: string): Finding => ({ state: "missing", subject, words });
const optional = (subject: string, words: string): Finding => ({ state: "optional", subject, words });

function nodeVersion(): Finding {
  const major = Number(process.versions.node.split(".")[0]);
  const words = `${process.version} on ${process.platform} ${process.arch}`;
  return major >= 20 ? good("node", words) : missing("node", `${words}: install Node 20 or newer`);
}

function machine(): Finding {
  const cores = availableParallelism();
  return good("machine", `${cores} cores, ${(totalmem() / 2 ** 30).toFixed(0)} GiB memory`);
}

/** A module of one function that applies one vector instruction to constants of zero. */
function vectorModule(operands: number, instruction: readonly number[]): Uint8Array<ArrayBuffer> {
  const constant = [0xfd, 0x0c, ...new Array<number>(16).fill(0)];
  const constants = new Array<number[]>(operands).fill(constant).flat();
  const body = [0, ...constants, 0xfd, ...instruction, 0x0b];
  const code = [1, body.length, ...body];
  const types = [0x01, 0x05, 0x01, 0x60, 0x00, 0x01, 0x7b];
  return new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, ...types, 3, 2, 1, 0, 0x0a, code.length, ...code]);
}

const add = vectorModule(2, [0xe4, 0x01]);
const fusedMultiplyAdd = vectorModule(3, [0x85, 0x02]);

function simd(): Finding {
  if (!WebAssembly.validate(add))
    return missing("simd", "this runtime has no WebAssembly SIMD: use a newer one");
  if (WebAssembly.validate(fusedMultiplyAdd))
    return good("simd", "tier b: relaxed SIMD with fused multiply-add");
  setFlagsFromString("--experimental-wasm-relaxed-simd");
  if (WebAssembly.validate(fusedMultiplyAdd))
    return good("simd", "tier b: relaxed SIMD, by a flag set at run time");
  return optional("simd", "tier a only: relaxed SIMD comes with Node 22 or newer");
}

function widePairs(): Finding {
  const major = Number(process.versions.node.split(".")[0]);
  const wanted = "256-bit pairs (tier c, when asked for)";
  if (process.arch !== "x64") return optional("wide simd", `${wanted} need an x64 processor`);
  if (major < 24) return optional("wide simd", `${wanted} need Node 24: npm install --prefix DIR node@24`);
  return good("wide simd", `${wanted} can be tried: the device tests them before it uses them`);
}

function sharedMemory(): Finding {
  for (const pages of [65536, 32768, 16384]) {
    try {
      new WebAssembly.Memory({ initial: 1, maximum: pages, shared: true });
      return good("memory", `shared memory up to ${pages / 16384} GiB`);
    } catch {
      // The next smaller limit may be granted.
    }
  }
  return missing("memory", "no shared WebAssembly memory: raise the limit on address space (ulimit -v)");
}

async function threads(): Promise<Finding> {
  const flag = new Int32Array(new SharedArrayBuffer(4));
  const program = "const { workerData } = require('node:worker_threads'); Atomics.store(workerData, 0, 1);";
  const worker = new Worker(program, { eval: true, workerData: flag, execArgv: [] });
  const started = performance.now();
  await new Promise((resolve, reject) => worker.once("exit", resolve).once("error", reject));
  const time = `${(performance.now() - started).toFixed(0)} ms`;
  if (Atomics.load(flag, 0) !== 1) return missing("threads", "a worker does not see shared memory");
  return good("threads", `a worker starts, writes shared memory and ends in ${time}`);
}

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

const findings: Finding[] = [
  nodeVersion(),
  machine(),
  simd(),
  widePairs(),
  sharedMemory(),
  await threads(),
  dependencies(),
  kernels(),
  chromium(),
  peers(),
];
const signs = { good: "✔", missing: "✗", optional: "–" };
for (const { state, subject, words } of findings)
  console.log(`${signs[state]} ${subject.padEnd(10)} ${words}`);
process.exitCode = findings.some(({ state }) => state === "missing") ? 1 : 0;
