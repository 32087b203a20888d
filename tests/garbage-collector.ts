/** V8's collector, made callable while the process runs. */
export async function garbageCollector(): Promise<() => void> {
  const [{ setFlagsFromString }, { runInNewContext }] = await Promise.all([
    import("node:v8"),
    import("node:vm"),
  ]);
  setFlagsFromString("--expose-gc");
  return runInNewContext("gc") as () => void;
}
