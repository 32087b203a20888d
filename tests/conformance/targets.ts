/** The devices that this machine can test: the host in float32 and every tier of WebAssembly that it validates. */
import type { Device } from "../../src/device/device.ts";
import { hostDevice } from "../../src/device/host/host.ts";
import { openWasm } from "../../src/device/wasm/open.ts";
import type { Target } from "./suite.ts";

const opened = new Map<string, Promise<Device>>();

function once(key: string, open: () => Promise<Device>): Promise<Device> {
  const found = opened.get(key) ?? open();
  opened.set(key, found);
  return found;
}

/** The loops of every kernel in float32, memory filled with NaN. */
export const hostTarget: Target = {
  name: "host",
  open: () => once("host", async () => hostDevice({ dtype: "float32", poison: true })),
};

/** One tier; jobs of any size are shared between the threads, so that small cases show what threads do. */
export function wasmTarget(tier: "a" | "b" | "c"): Target {
  return {
    name: `wasm-${tier}`,
    open: (threads) =>
      once(`${tier}${threads}`, async () => {
        const device = await openWasm({ tier, threads, poison: true });
        const run = device.run.bind(device);
        if (threads > 1)
          device.run = (dispatch) => run({ ...dispatch, work: Math.max(dispatch.work, 2 ** 26) });
        return device;
      }),
  };
}

/** Every target of this machine. */
export async function targets(): Promise<Target[]> {
  const found: Target[] = [hostTarget];
  for (const tier of ["a", "b", "c"] as const) {
    const device = await wasmTarget(tier).open(1);
    if (device.info().tier === tier) found.push(wasmTarget(tier));
  }
  return found;
}

/** Frees every device that a test opened. */
export async function closeTargets(): Promise<void> {
  for (const device of opened.values()) (await device).close();
  opened.clear();
}
