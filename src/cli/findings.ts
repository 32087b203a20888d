/** What a machine offers: each a finding in words, and where something is missing the way to get it. */
import { availableParallelism, totalmem } from "node:os";
import { setFlagsFromString } from "node:v8";
import { Worker } from "node:worker_threads";

/** One thing that was looked at. */
export interface Finding {
  readonly state: "good" | "missing" | "optional";
  readonly subject: string;
  readonly words: string;
}

export const good = (subject: string, words: string): Finding => ({ state: "good", subject, words });
export const missing = (subject: string, words: string): Finding => ({ state: "missing", subject, words });
export const optional = (subject: string, words: string): Finding => ({ state: "optional", subject, words });

/** Everything that does not depend on where Linnet is installed. */
export async function machineFindings(): Promise<Finding[]> {
  return [nodeVersion(), machine(), simd(), widePairs(), sharedMemory(), await threads()];
}

/** The findings as lines, a sign before each. */
export function findingLines(findings: readonly Finding[]): string[] {
  const signs = { good: "✔", missing: "✗", optional: "–" };
  return findings.map(({ state, subject, words }) => `${signs[state]} ${subject.padEnd(10)} ${words}`);
}

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

function simd(): Finding {
  const add = vectorModule(2, [0xe4, 0x01]);
  const fusedMultiplyAdd = vectorModule(3, [0x85, 0x02]);
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
  const wanted = "256-bit pairs (tier c)";
  if (process.arch !== "x64") return optional("wide simd", `${wanted} need an x64 processor`);
  if (major < 24) return optional("wide simd", `${wanted} need Node 24: npm install node@24`);
  return good("wide simd", `${wanted} can be tried; they are tested before use`);
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
