import { LanguageModel } from "../src/generate/language-model.ts";
import { Decoder } from "../src/models/decoder.ts";
import { initialize } from "../src/nn/module.ts";
import { Random } from "../src/tensor/random.ts";
import { bytes } from "../src/text/bytes.ts";
import { garbageCollector } from "../tests/garbage-collector.ts";
import { type Bench, figure, numbers, type Row } from "./bench.ts";

const marks = [1000, 10_000, 100_000];
/** Tokens timed at a time, and how many such spans before a mark are looked at. */
const span = 50;
const spans = 20;

/** Seconds a token: the fastest span and the middle one. */
function rates(times: readonly number[]): { readonly best: number; readonly median: number } {
  const sorted = [...times].sort((a, b) => a - b);
  return { best: sorted[0]! / span, median: sorted[sorted.length >> 1]! / span };
}

/** One text that goes on and on: its rate, and the bytes it holds. */
export const streamBench: Bench = {
  name: "stream",
  about: "tokens a second and resident bytes of one text after so many tokens, one thread; --ids, --T",
  columns: [
    figure("id", "name"),
    figure("tokens", "tokens", 0),
    figure("tokens/s", "tokensPerSecond", 0),
    figure("median", "medianTokensPerSecond", 0),
    figure("device bytes", "deviceBytes", 0),
    figure("heap bytes", "heapBytes", 0),
    figure("state bytes", "stateBytes", 0),
  ],
  async *run({ devices, options }) {
    const device = devices.get(1)!;
    const collect = await garbageCollector();
    for (const id of options["ids"]?.split(",") ?? ["linear"]) {
      const decoder = new Decoder({
        ...{ vocabularySize: 257, width: 128, layers: 4, heads: 4, pattern: [id], tied: true },
      });
      initialize(decoder, device, new Random(1));
      const model = new LanguageModel(decoder, bytes(), device);
      const warm = model.session();
      await warm.generate({ maxNewTokens: 3000, stopTokens: [] });
      warm.dispose();
      yield* streamRows(id, model, numbers(options["T"], marks), collect);
      model.dispose();
    }
  },
};

async function* streamRows(
  id: string,
  model: LanguageModel,
  wanted: readonly number[],
  collect: () => void,
): AsyncGenerator<Row> {
  const session = model.session();
  const last = Math.max(...wanted);
  let count = 0;
  let began = performance.now();
  const times: number[] = [];
  for await (const _ of session.generate({ maxNewTokens: last, stopTokens: [] })) {
    count++;
    if (count % span === 0) {
      times.push((performance.now() - began) / 1000);
      if (times.length > spans) times.shift();
      began = performance.now();
    }
    if (!wanted.includes(count)) continue;
    const { best, median } = rates(times);
    collect();
    const { persistent, scoped } = model.device.info().bytes;
    yield {
      ...{ name: id, id, tokens: count, tokensPerSecond: 1 / best, medianTokensPerSecond: 1 / median },
      ...{ deviceBytes: persistent + scoped, heapBytes: process.memoryUsage().heapUsed },
      stateBytes: session.bytes.now,
    };
    began = performance.now();
  }
  session.dispose();
}
