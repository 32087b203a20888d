/**
 * Where things lie in the control block that the caller's thread and the workers share: the same numbers as in
 * `kernels/runtime.as.ts`, in bytes from its beginning.
 */
export const control = {
  generation: 0,
  active: 128,
  next: 256,
  job: 384,
  sleepers: 512,
  waiting: 640,
  /** Turns to spin before sleeping, stop flag, thread that trapped, number of threads: one word each. */
  settings: 768,
  /** The message of the trap, one character a byte, ended by a zero. */
  trapText: 896,
  /** One line of `threadBytes` per thread: scratch address, runs done, generation seen. */
  threads: 1024,
} as const;

/** Bytes of one thread's line. */
export const threadBytes = 128;

/** Bytes of a trap's message with its end. */
export const trapTextBytes = 128;

/** ACTIVE while no job is open and nobody is inside. */
export const closedGate = 0x40000000;

/** Words that the arguments of one dispatch may take. */
export const argumentWords = 256;

/** Words for the arguments of all jobs that wait. */
export const queueWords = 4096;

/** Bytes of the whole block for so many threads, the arguments behind it. */
export function controlBytes(threads: number): number {
  return control.threads + threads * threadBytes + queueWords * 4;
}
