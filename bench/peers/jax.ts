import { type PeerModule, type PeerTask, randomValues } from "./task.ts";

/** The little of the package that is used; it is installed apart, so its types are not here. */
interface JaxArray {
  readonly ref: JaxArray;
  reshape(shape: readonly number[]): JaxArray;
  blockUntilReady(): Promise<unknown>;
  dispose(): void;
}
interface Jax {
  init(device: string): Promise<readonly string[]>;
  defaultDevice(device: string): string;
  jit(run: (...args: never[]) => JaxArray): (...args: JaxArray[]) => JaxArray;
  readonly numpy: {
    array(values: Float32Array): JaxArray;
    matmul(a: JaxArray, b: JaxArray): JaxArray;
    matrixTranspose(x: JaxArray): JaxArray;
  };
}

type Functions = Readonly<Record<string, (...args: JaxArray[]) => JaxArray>>;

const functions = ({ numpy: np }: Jax): Functions => ({
  nn: (a, b) => np.matmul(a!, b!),
  nt: (a, b) => np.matmul(a!, np.matrixTranspose(b!)),
  tn: (a, b) => np.matmul(np.matrixTranspose(a!), b!),
});

let opened: Promise<Jax> | undefined;

async function open(): Promise<Jax> {
  const name = "@jax-js/jax";
  const jax = (await import(name)) as Jax;
  await jax.init("wasm");
  jax.defaultDevice("wasm");
  return jax;
}

/** The peer @jax-js/jax on WebAssembly: one thread, jitted, as its users would. */
export const prepare: PeerModule["prepare"] = async ({ jax: task }: PeerTask) => {
  if (task === undefined) return undefined;
  opened ??= open();
  const jax = await opened;
  const run = jax.jit(functions(jax)[task.name] as never);
  const args = task.shapes.map((shape) => jax.numpy.array(randomValues(shape)).reshape(shape));
  return async () => {
    const result = run(...args.map((arg) => arg.ref));
    await result.blockUntilReady();
    result.dispose();
  };
};
