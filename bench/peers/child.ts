/** One peer in a process of its own, so that its flags, threads and garbage are not ours: prepares and runs on request. */
import type { PeerJob, PeerModule, PeerTask } from "./task.ts";

/** What the benchmark asks. */
export type Request =
  | { readonly prepare: PeerTask; readonly module: string; readonly threads: number }
  | { readonly repetitions: number };

/** What this process answers. */
export type Answer = { readonly ready: boolean } | { readonly seconds: number } | { readonly error: string };

let job: PeerJob | undefined;

async function answer(request: Request): Promise<Answer> {
  if ("prepare" in request) {
    const module = (await import(`./${request.module}.ts`)) as PeerModule;
    job = await module.prepare(request.prepare, request.threads);
    return { ready: job !== undefined };
  }
  const begin = performance.now();
  for (let i = 0; i < request.repetitions; i++) await job!();
  return { seconds: (performance.now() - begin) / 1000 };
}

process.on("message", (request: Request) => {
  answer(request).then(
    (value) => process.send!(value),
    (error: unknown) => process.send!({ error: String(error) }),
  );
});
process.on("disconnect", () => process.exit(0));
