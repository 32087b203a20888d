// The thread runtime: one control block in shared memory, one job at a time, units handed out by an atomic counter
// in runs that get shorter towards the end.
// The caller opens a job, workers join it if they are awake in time, the caller closes it and waits only for those who
// joined: a worker that sleeps, starts late or is gone never holds a job up.

// Words that different threads write lie 128 bytes apart, so that no two of them share a cache line or its neighbour.
// @ts-ignore: decorator
@inline const GENERATION: usize = 0;
// @ts-ignore: decorator
@inline const ACTIVE: usize = 128;
// @ts-ignore: decorator
@inline const NEXT: usize = 256;
// @ts-ignore: decorator
@inline const JOB: usize = 384;
// @ts-ignore: decorator
@inline const SLEEPERS: usize = 512;
// @ts-ignore: decorator
@inline const WAITING: usize = 640;
// @ts-ignore: decorator
@inline const SETTINGS: usize = 768;
// @ts-ignore: decorator
@inline const THREADS: usize = 1024;

/** The bit of ACTIVE that says the job takes nobody in any more; the rest counts who is inside. */
// @ts-ignore: decorator
@inline const CLOSED: i32 = 0x40000000;

// @ts-ignore: decorator
@inline function lineOf(control: usize, thread: i32): usize {
  return control + THREADS + ((<usize>thread) << 7);
}

/** Runs units of the open job until none is left. */
function take(control: usize, thread: i32): void {
  const mine = lineOf(control, thread);
  const scratch = <usize>load<u32>(mine);
  const kernel = load<i32>(control + JOB);
  const args = <usize>load<u32>(control + JOB, 4);
  const units = load<i32>(control + JOB, 8);
  const shares = load<i32>(control + JOB, 12);
  while (true) {
    // Long runs first and short ones last: few calls, and everybody ends at about the same time.
    const begin = atomic.load<i32>(control + NEXT);
    if (begin >= units) return;
    const end = begin + max((units - begin) / shares, 1);
    if (atomic.cmpxchg<i32>(control + NEXT, begin, end) != begin) continue;
    call_indirect<void>(kernel, args, begin, end, scratch);
    atomic.store<i32>(mine, load<i32>(mine, 4) + 1, 4);
  }
}

/** Leaves the open job; the last one out wakes the caller if it sleeps. */
function leave(control: usize): void {
  if (atomic.sub<i32>(control + ACTIVE, 1) - 1 == CLOSED && atomic.load<i32>(control + WAITING) != 0) {
    atomic.notify(control + ACTIVE, 1);
  }
}

/** A worker's life: spin a while, sleep, join jobs; returns when the pool stops. A trap in a kernel leaves it too. */
export function serve(control: usize, thread: i32): void {
  let seen = load<i32>(lineOf(control, thread), 8);
  while (true) {
    let spins = load<i32>(control + SETTINGS);
    while (atomic.load<i32>(control + GENERATION) == seen) {
      if (--spins > 0) continue;
      atomic.add<i32>(control + SLEEPERS, 1);
      atomic.wait<i32>(control + GENERATION, seen, -1);
      atomic.sub<i32>(control + SLEEPERS, 1);
    }
    seen = atomic.load<i32>(control + GENERATION);
    store<i32>(lineOf(control, thread), seen, 8);
    if (atomic.load<i32>(control + SETTINGS, 4) != 0) return;
    if ((atomic.add<i32>(control + ACTIVE, 1) & CLOSED) == 0) take(control, thread);
    leave(control);
  }
}

/** Called by a worker whose kernel trapped: the job is over for it and the caller hears of it. */
export function trapped(control: usize, thread: i32): void {
  atomic.store<i32>(control + SETTINGS, thread, 8);
  leave(control);
}

/**
 * Opens a job, takes a share, closes it. 0: done; 1: a worker trapped; 2: a worker made no progress in time; 3: done,
 * but the caller waited an eighth of its spinning time for the last worker; 4: it spun all of it and slept.
 */
export function dispatch(
  control: usize, kernel: i32, args: usize, units: i32, shares: i32, patience: i32,
): i32 {
  store<i32>(control + JOB, kernel);
  store<u32>(control + JOB, <u32>args, 4);
  store<i32>(control + JOB, units, 8);
  store<i32>(control + JOB, shares, 12);
  atomic.store<i32>(control + NEXT, 0);
  atomic.and<i32>(control + ACTIVE, ~CLOSED);
  atomic.add<i32>(control + GENERATION, 1);
  if (atomic.load<i32>(control + SLEEPERS) > 0) atomic.notify(control + GENERATION, -1);
  take(control, 0);
  return finish(control, patience);
}

/** Closes the job and waits for those inside; `patience` in milliseconds without any unit done means one is gone. */
export function finish(control: usize, patience: i32): i32 {
  atomic.or<i32>(control + ACTIVE, CLOSED);
  // Nothing is handed out any more, so that workers stop early where the caller's own share trapped.
  atomic.store<i32>(control + NEXT, load<i32>(control + JOB, 8));
  const longest = load<i32>(control + SETTINGS);
  let spins = longest;
  let done = -1;
  while (atomic.load<i32>(control + ACTIVE) != CLOSED) {
    if (--spins > 0) continue;
    atomic.store<i32>(control + WAITING, 1);
    const inside = atomic.load<i32>(control + ACTIVE);
    if (inside == CLOSED) break;
    const result = atomic.wait<i32>(control + ACTIVE, inside, <i64>patience * 1000000);
    if (result != 2) continue;
    const progress = countProgress(control);
    if (progress == done) return 2;
    done = progress;
  }
  atomic.store<i32>(control + WAITING, 0);
  if (load<i32>(control + SETTINGS, 8) == 0) return spins <= 0 ? 4 : spins < longest - (longest >> 3) ? 3 : 0;
  store<i32>(control + SETTINGS, 0, 8);
  return 1;
}

function countProgress(control: usize): i32 {
  const threads = load<i32>(control + SETTINGS, 12);
  let sum = 0;
  for (let thread = 1; thread < threads; thread++) sum += atomic.load<i32>(lineOf(control, thread), 4);
  return sum;
}

/** As many turns of the waiting loop as given: the caller times it to know how long a turn takes. */
export function spin(control: usize, turns: i32): void {
  const seen = atomic.load<i32>(control + GENERATION);
  while (atomic.load<i32>(control + GENERATION) == seen) {
    if (--turns > 0) continue;
    return;
  }
}

/** One kernel by its place in the table, on the calling thread. */
export function call(kernel: i32, args: usize, begin: i32, end: i32, scratch: usize): void {
  call_indirect<void>(kernel, args, begin, end, scratch);
}

/** Bytes from one place of the memory to another. */
export function copy(to: usize, from: usize, bytes: usize): void {
  memory.copy(to, from, bytes);
}
