import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Contender } from "../measure.ts";
import type { Answer, Request } from "./child.ts";
import type { PeerTask } from "./task.ts";

/** Packages that can be compared with, and the file that speaks for each. */
const modules: Readonly<Record<string, string>> = {
  "onnxruntime-web": "onnxruntime-web",
  "onnxruntime-node": "onnxruntime-node",
  "@jax-js/jax": "jax",
};

/** The peers of a run: each in its own process per thread count, started when first needed. */
export interface Peers {
  /** Names of those that are not installed. */
  readonly missing: readonly string[];
  /** A contender that does the task; undefined where the peer is not installed or cannot do it. */
  contender(name: string, threads: number, task: PeerTask): Promise<Contender | undefined>;
  close(): void;
}

async function ask(child: ChildProcess, request: Request): Promise<Answer> {
  child.send(request);
  const [answer] = (await once(child, "message")) as [Answer];
  return answer;
}

/** Starts nothing yet: looks what is installed. */
export function openPeers(): Peers {
  const children = new Map<string, ChildProcess>();
  const installed = (name: string): boolean =>
    existsSync(fileURLToPath(new URL(`../node_modules/${name}/package.json`, import.meta.url)));
  const childOf = (name: string, threads: number): ChildProcess => {
    const key = `${name} ${threads}`;
    const child = children.get(key) ?? fork(fileURLToPath(new URL("child.ts", import.meta.url)));
    children.set(key, child);
    return child;
  };
  const contender = async (name: string, threads: number, task: PeerTask): Promise<Contender | undefined> => {
    if (!installed(name)) return undefined;
    const child = childOf(name, threads);
    const answer = await ask(child, { prepare: task, module: modules[name]!, threads });
    if ("error" in answer) throw new Error(`${name}: ${answer.error}`);
    if (!("ready" in answer) || !answer.ready) return undefined;
    const sample = async (repetitions: number): Promise<number> => {
      const result = await ask(child, { repetitions });
      if (!("seconds" in result)) throw new Error(`${name}: ${JSON.stringify(result)}`);
      return result.seconds;
    };
    return { name, foreign: true, sample };
  };
  const close = (): void => {
    for (const child of children.values()) child.disconnect();
  };
  return { missing: Object.keys(modules).filter((name) => !installed(name)), contender, close };
}
