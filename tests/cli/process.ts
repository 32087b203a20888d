/** The command line as a process of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { root } from "../../scripts/rooms.ts";

/** How a process ended and what it said. */
export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A process that runs. */
export interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  /** Waits until stdout and stderr together hold a text. */
  said(text: string): Promise<void>;
}

export interface StartOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** What bash does before it becomes the process. */
  readonly before?: string;
}

/** Starts `linnet` with arguments, in a folder. */
export function start(folder: string, args: readonly string[], options: StartOptions = {}): Running {
  const tsx = join(root, "node_modules/tsx/dist/loader.mjs");
  const command = [process.execPath, "--import", tsx, join(root, "src/cli/main.ts"), ...args];
  const { NO_COLOR: _no, FORCE_COLOR: _force, NODE_TEST_CONTEXT: _test, ...env } = process.env;
  const script = `${options.before ?? ":"}; exec "$@"`;
  const child = spawn("bash", ["-c", script, "bash", ...command], {
    cwd: folder,
    env: { ...env, ...options.env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said = { stdout: "", stderr: "" };
  const waiting: { text: string; resolve: () => void }[] = [];
  for (const name of ["stdout", "stderr"] as const) {
    child[name]!.setEncoding("utf8").on("data", (text: string) => {
      said[name] += text;
      for (const one of waiting) if ((said.stdout + said.stderr).includes(one.text)) one.resolve();
    });
  }
  const ended = new Promise<Ended>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => {
      resolve({ code, signal, ...said });
      for (const one of waiting) one.resolve();
    });
  });
  return {
    ...{ child, ended },
    said: (text) =>
      new Promise((resolve) => {
        if ((said.stdout + said.stderr).includes(text)) resolve();
        else waiting.push({ text, resolve });
      }),
  };
}

/** Runs `linnet` to its end. */
export function linnet(folder: string, args: readonly string[], options?: StartOptions): Promise<Ended> {
  return start(folder, args, options).ended;
}

/** Runs something in a folder that is gone afterwards. */
export async function inFolder(run: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "linnet-cli-"));
  try {
    await run(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
