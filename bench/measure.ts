import { setTimeout } from "node:timers/promises";
import type { Device } from "../src/device/index.ts";

/** Something that can be timed: runs `repetitions` times and says how long all of them took, in seconds. */
export interface Contender {
  readonly name: string;
  /** True where the work is done by another process: its threads spin for a while after a job, on our cores. */
  readonly foreign?: boolean;
  sample(repetitions: number): number | Promise<number>;
}

/** Seconds of one repetition. */
export interface Timing {
  readonly best: number;
  readonly median: number;
  readonly samples: number;
}

/** How long to look. */
export interface MeasureOptions {
  /** Samples of each contender; 15 unless given. */
  readonly samples?: number;
  /** Least length of a sample in milliseconds; 8 unless given: shorter ones time the caches that the one before left. */
  readonly milliseconds?: number;
}

/** Compiled code is at its best after some 10 ms of calls; two samples of this length are thrown away first. */
const warmMilliseconds = 15;

/** Longer than the threads of ONNX Runtime and of OpenMP look for their next job before they sleep. */
const settleMilliseconds = 60;

/** A contender from a function that issues work to a device of this process. */
export function local(name: string, device: Device, run: () => void): Contender {
  const sample = async (repetitions: number): Promise<number> => {
    const begin = performance.now();
    for (let i = 0; i < repetitions; i++) run();
    await device.settle();
    return (performance.now() - begin) / 1000;
  };
  return { name, sample };
}

/** Repetitions that fill a sample, found while warming up. */
async function warm(contender: Contender, milliseconds: number): Promise<number> {
  let repetitions = 1;
  for (let full = 0; full < 2; ) {
    const seconds = await contender.sample(repetitions);
    if (seconds * 1000 >= warmMilliseconds) full++;
    else
      repetitions = Math.ceil(
        repetitions * Math.min(4, (1.2 * warmMilliseconds) / Math.max(seconds * 1000, 1)) + 1,
      );
  }
  const each = (await contender.sample(repetitions)) / repetitions;
  return Math.max(1, Math.ceil(milliseconds / 1000 / each));
}

/**
 * Times contenders against each other: one sample of each in turn, so that whatever slows the machine down hits all.
 *
 * @returns Timings in the order of the contenders.
 */
export async function interleave(
  contenders: readonly Contender[],
  options: MeasureOptions = {},
): Promise<Timing[]> {
  const { samples = 15, milliseconds = 8 } = options;
  const repetitions: number[] = [];
  for (const contender of contenders) {
    repetitions.push(await warm(contender, milliseconds));
    if (contender.foreign) await setTimeout(settleMilliseconds);
  }
  const seconds = contenders.map((): number[] => []);
  for (let round = 0; round < samples; round++) {
    for (const [i, contender] of contenders.entries()) {
      const spent = await contender.sample(repetitions[i]!);
      if (contender.foreign) await setTimeout(settleMilliseconds);
      seconds[i]!.push(spent / repetitions[i]!);
      // A sample that came out too short was calibrated on a bad moment.
      if (spent * 1000 < milliseconds)
        repetitions[i] = Math.ceil((repetitions[i]! * milliseconds * 1.1) / (spent * 1000));
    }
  }
  return seconds.map((list) => {
    const sorted = [...list].sort((a, b) => a - b);
    return { best: sorted[0]!, median: sorted[sorted.length >> 1]!, samples: sorted.length };
  });
}
