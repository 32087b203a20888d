/** Runs in a worker of the page: opens a device as asked, does one shared job, answers with what it saw. */
import { openWasm } from "../../src/device/index.ts";
import type { Answer, Question } from "./question.ts";
import { checksum, job, length } from "./question.ts";

/** The part of a worker's global scope that this program uses. */
interface Scope {
  onmessage: ((event: MessageEvent<Question>) => void) | null;
  postMessage(answer: Answer): void;
}

async function answer({ threads, refuseAbove, threadScript }: Question): Promise<Answer> {
  const { Memory } = WebAssembly;
  const most = refuseAbove ?? 65536;
  if (refuseAbove !== undefined) {
    WebAssembly.Memory = class extends Memory {
      constructor(descriptor: WebAssembly.MemoryDescriptor) {
        if (descriptor.maximum! > most) throw new RangeError("could not allocate memory");
        super(descriptor);
      }
    } as typeof Memory;
  }
  const createWorker = threadScript === undefined ? undefined : () => new Worker(threadScript);
  const device = await openWasm({ threads, ...(createWorker === undefined ? {} : { createWorker }) });
  const storage = device.allocate("float32", length);
  device.run(job(storage));
  const values = (await device.read({ storage, offset: 0 }, length)) as Float32Array;
  const info = device.info();
  const shared = typeof SharedArrayBuffer !== "undefined" && globalThis.crossOriginIsolated;
  device.close();
  return { info, checksum: checksum(values), shared };
}

const scope = globalThis as unknown as Scope;

if (typeof document === "undefined") {
  scope.onmessage = async ({ data }) => {
    scope.postMessage(await answer(data).catch((error) => ({ error: `${error}` })));
  };
} else Object.assign(globalThis, { answer });
