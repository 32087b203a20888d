/** Loads the model of a folder and prints how many bytes the process held at most beyond those before. */
import { load } from "../src/checkpoint/load.ts";
import { openWasm } from "../src/device/index.ts";

const device = await openWasm({ threads: 1 });
// Once before, so that code and heap that any load takes are there already.
const tiny = new URL("../tests/golden/models/fla-gla", import.meta.url).pathname;
(await load(tiny, { device })).dispose();
(globalThis as { gc?: () => void }).gc?.();
const before = process.memoryUsage.rss();
let peak = before;
const watch = (): void => {
  peak = Math.max(peak, process.memoryUsage.rss());
};
const model = await load(process.argv[2]!, { device, onProgress: watch });
watch();
process.stdout.write(`${peak - before}\n`);
model.dispose();
device.close();
