import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Contender } from "../measure.ts";

/** A job as the Python script knows it. */
export interface TorchTask {
  readonly name: string;
  readonly H: number;
  readonly T: number;
  readonly K: number;
  readonly V: number;
  readonly backward: boolean;
}

/** Training steps of a decoder as the Python script builds it. */
export interface TorchTraining {
  readonly name: "train";
  readonly width: number;
  readonly hidden: number;
  readonly vocabulary: number;
  readonly B: number;
  readonly T: number;
  readonly mixers: readonly {
    readonly kind: string;
    readonly heads: number;
    readonly K: number;
    readonly V: number;
    readonly gated: boolean;
  }[];
}

/** PyTorch in a process of its own, started by the Python that the user names. */
export interface TorchPeer {
  contender(task: TorchTask | TorchTraining, threads: number): Promise<Contender | undefined>;
  close(): void;
}

/** Starts nothing until the first task; undefined where no Python is named. */
export function openTorch(python: string | undefined): TorchPeer | undefined {
  if (python === undefined) return undefined;
  let child: ChildProcess | undefined;
  const answers: ((line: string) => void)[] = [];
  const ask = (request: object): Promise<Record<string, unknown>> => {
    if (child === undefined) {
      child = spawn(python, [fileURLToPath(new URL("torch_peer.py", import.meta.url))], {
        stdio: ["pipe", "pipe", "inherit"],
      });
      createInterface({ input: child.stdout! }).on("line", (line) => answers.shift()?.(line));
      child.on("exit", () => {
        for (const answer of answers.splice(0)) answer('{"error":"PyTorch ended"}');
      });
    }
    return new Promise((resolve) => {
      answers.push((line) => resolve(JSON.parse(line) as Record<string, unknown>));
      child!.stdin!.write(`${JSON.stringify(request)}\n`);
    });
  };
  return {
    async contender(task, threads) {
      const { ready } = await ask({ ...task, threads });
      if (!ready) return undefined;
      return {
        name: "pytorch",
        foreign: true,
        sample: async (repetitions) => {
          const { seconds, error } = await ask({ repetitions });
          if (typeof seconds !== "number") throw new Error(`pytorch: ${String(error)}`);
          return seconds;
        },
      };
    },
    close: () => child?.kill(),
  };
}
