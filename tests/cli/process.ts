/** The command line as a process of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildSync } from "esbuild";
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

let bundled: string | undefined;

/** The program as one file: a process starts in a fraction of the time that its hundreds of sources take. */
function program(): string {
  if (bundled !== undefined) return bundled;
  const file = join(root, "tests/generated/cli", `${process.pid}.mjs`);
  buildSync({
    ...{ entryPoints: [join(root, "src/cli/main.ts")], outfile: file, absWorkingDir: root },
    ...{ bundle: true, platform: "node", format: "esm", packages: "external", logLevel: "silent" },
  });
  process.on("exit", () => rmSync(file, { force: true }));
  bundled = file;
  return file;
}

/** Starts `linnet` with arguments, in a folder. */
export function start(folder: string, args: readonly string[], options: StartOptions = {}): Running {
  const command = [process.execPath, program(), ...args];
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
