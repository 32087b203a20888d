import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Browser } from "playwright-core";
import { chromium } from "playwright-core";
import { openWasm } from "../../src/device/index.ts";
import type { Answer, Question } from "./question.ts";
import { checksum, job, length } from "./question.ts";
import { findChromium, serve } from "./site.ts";

const executablePath = findChromium();
const skip =
  executablePath === undefined && "no Chromium here: apt-get install chromium, or set LINNET_CHROMIUM to one";
if (skip) console.log(`browser tests are skipped: ${skip}`);
const options = { skip, timeout: 120_000 };

let browser: Browser;
let site: Awaited<ReturnType<typeof serve>>;

before(async () => {
  if (skip) return;
  site = await serve();
  browser = await chromium.launch({ executablePath: executablePath!, args: ["--no-sandbox"] });
});

after(async () => {
  if (skip) return;
  await browser.close();
  site.server.close();
});

/** Asks a worker of a page of this kind, or the page's own main thread. */
async function ask(kind: string, question: Question, where: "worker" | "window" = "worker"): Promise<Answer> {
  const page = await browser.newPage();
  try {
    await page.goto(`${site.origin}/${kind}/`);
    if (where === "window") {
      const ready = "typeof answer === 'function'";
      await page.waitForFunction(ready);
      return (await page.evaluate(`answer(${JSON.stringify(question)})`)) as Answer;
    }
    return (await page.evaluate(`new Promise((resolve, reject) => {
      const worker = new Worker("program.js", { type: "module" });
      worker.onmessage = (event) => resolve(event.data);
      worker.onerror = (event) => reject(new Error(event.message));
      worker.postMessage(${JSON.stringify(question)});
    })`)) as Answer;
  } finally {
    await page.close();
  }
}

async function expected(): Promise<number> {
  const device = await openWasm({ threads: 1 });
  const storage = device.allocate("float32", length);
  device.run(job(storage));
  const values = device.readSync({ storage, offset: 0 }, length) as Float32Array;
  device.close();
  return checksum(values);
}

test("browser: an isolated page has threads on shared memory", options, async () => {
  const answer = await ask("isolated", { threads: 3 });
  assert.equal(answer.error, undefined);
  assert.equal(answer.shared, true);
  assert.equal(answer.info!.threads, 3);
  assert.equal(answer.info!.tier, "b");
  assert.equal(answer.info!.bytes.limit, 2 ** 32);
  assert.deepEqual(answer.info!.notes, []);
  assert.equal(answer.checksum, await expected());
});

test(
  "browser: a page that is not isolated has one thread on its own memory and says why",
  options,
  async () => {
    const answer = await ask("plain", { threads: 3 });
    assert.equal(answer.error, undefined);
    assert.equal(answer.shared, false);
    assert.equal(answer.info!.threads, 1);
    assert.match(
      answer.info!.notes.join(),
      /one thread.*not cross-origin isolated.*Cross-Origin-Opener-Policy/,
    );
    assert.equal(answer.checksum, await expected());
  },
);

test("browser: where 4 GiB are refused the device starts with less", options, async () => {
  const answer = await ask("isolated", { threads: 2, refuseAbove: 16384 });
  assert.equal(answer.error, undefined);
  assert.equal(answer.info!.bytes.limit, 2 ** 30);
  assert.equal(answer.info!.threads, 2);
  assert.match(answer.info!.notes.join(), /memory ends at 1024 MiB: the system refused 4096 MiB/);
  assert.equal(answer.checksum, await expected());
});

test("browser: the main thread of a page computes alone and says why", options, async () => {
  const answer = await ask("isolated", { threads: 2 }, "window");
  assert.equal(answer.info!.threads, 1);
  assert.match(answer.info!.notes.join(), /main thread of a page.*in a worker/);
  assert.equal(answer.checksum, await expected());
});

test(
  "browser: a policy against blob workers costs the threads, a script of one's own keeps them",
  options,
  async () => {
    const without = await ask("strict", { threads: 2 });
    assert.equal(without.info!.threads, 1);
    assert.match(without.info!.notes.join(), /one thread: the others could not start/);
    const own = await ask("strict", { threads: 2, threadScript: "thread.js" });
    assert.equal(own.info!.threads, 2);
    assert.deepEqual(own.info!.notes, []);
    assert.equal(own.checksum, await expected());
  },
);
