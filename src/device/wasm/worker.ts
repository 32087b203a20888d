import { control, trapTextBytes } from "./control.ts";

/**
 * What a thread of the pool runs, as text: it needs no file beside the bundle. It instantiates the module on the
 * shared memory and stays inside its waiting loop until the pool stops.
 */
export const workerSource = `(() => {
  const node = typeof require === "function";
  const port = node ? require("node:worker_threads").parentPort : self;
  const start = ({ module, memory, names, block, thread }) => {
    const { exports } = new WebAssembly.Instance(module, { env: { memory, abort() {} } });
    const first = exports.table.grow(names.length);
    names.forEach((name, i) => exports.table.set(first + i, exports[name]));
    port.postMessage({ ready: thread });
    for (;;) {
      try {
        return exports.serve(block, thread);
      } catch (error) {
        const text = String(error && error.message).slice(0, ${trapTextBytes - 1});
        const bytes = new Uint8Array(memory.buffer, block + ${control.trapText}, ${trapTextBytes});
        for (let i = 0; i <= text.length; i++) bytes[i] = i < text.length ? text.charCodeAt(i) & 127 : 0;
        exports.trapped(block, thread);
      }
    }
  };
  if (node) port.once("message", start);
  else self.onmessage = (event) => start(event.data);
})();
`;
