import type { Storage } from "../src/device/device.ts";
import { type Device, hostDevice } from "../src/device/index.ts";
import { readLimitOf } from "../src/device/limits.ts";
import { LanguageModel } from "../src/generate/language-model.ts";
import type { DecoderConfig } from "../src/models/config.ts";
import { Decoder } from "../src/models/decoder.ts";
import { initialize } from "../src/nn/module.ts";
import { Random } from "../src/tensor/random.ts";
import { bytes } from "../src/text/bytes.ts";
import { type Bench, type Context, figure, numbers, percent, type Row } from "./bench.ts";
import { interleave, local } from "./measure.ts";

const contexts = [64, 1024, 16_384, 65_536];
const usual = ["linear", "gla", "gated-delta", "kda", "softmax"];
/** Rows stepped together where a step is held against what the machine can do. */
const batches = [1, 16];

function modelOf(id: string, device: Device): LanguageModel {
  const config: DecoderConfig = {
    ...{ vocabularySize: 257, width: 256, layers: 4, heads: 4, pattern: [id] },
    ...{ mixer: { keyWidth: 64, valueWidth: 64 }, tied: true },
  };
  const decoder = new Decoder(config);
  initialize(decoder, device, new Random(1));
  return new LanguageModel(decoder, bytes(), device);
}

/**
 * What a step reads of weights and states, where it lies: everything its kernels were given that outlives the step, but
 * for the table of embeddings, of which it reads a row.
 */
function operandsOf(device: Device, step: () => void): Set<Storage> {
  const found = new Set<Storage>();
  const run = device.run.bind(device);
  device.run = (dispatch) => {
    run(dispatch);
    const isTable = dispatch.kernel.key.startsWith("embedding.");
    for (const { storage } of dispatch.buffers) {
      if (storage.persistent && storage.dtype === "float32" && !isTable) found.add(storage);
    }
  };
  try {
    step();
  } finally {
    device.run = run;
  }
  return found;
}

/** Steps of several rows beside what bounds them: reading the same weights and states once, and the multiply-adds. */
async function* boundRows(id: string, { devices, peak, measure }: Context): AsyncGenerator<Row> {
  const device = devices.get(1)!;
  const model = modelOf(id, device);
  const { parameterCount } = model.decoder;
  for (const batch of batches) {
    const slots = Array.from({ length: batch }, () => model.takeSlot());
    const ids = new Int32Array(batch).fill(65);
    const step = (): void => {
      model.advance(slots, ids);
    };
    const state = model.states.bytesPerSequence;
    step();
    const fma = peak.fma(device);
    const reading = readLimitOf(device, operandsOf(device, step));
    const contenders = [local("step", device, step), local("read", device, reading.run), fma.contender];
    const [own, read, compute] = await interleave(contenders, measure);
    const operations = 2 * batch * (parameterCount + (2 * state) / 4);
    yield {
      ...{ name: `${id} × ${batch}`, id, batch, usPerToken: (own!.best * 1e6) / batch },
      ...{
        medianUs: (own!.median * 1e6) / batch,
        stepUs: own!.best * 1e6,
        readUs: read!.best * 1e6,
        readBytes: reading.amount,
      },
      ...{ readShare: read!.best / own!.best, gflops: operations / own!.best / 1e9 },
      ...{ fmaShare: operations / own!.best / (fma.amount / compute!.best), stateBytes: state },
    };
    reading.release();
    for (const slot of slots) model.giveSlot(slot);
  }
  model.dispose();
}

/** Steps after contexts that were really read. */
async function* contextRows(id: string, { devices, options, measure }: Context): AsyncGenerator<Row> {
  const device = devices.get(1) ?? hostDevice();
  const model = modelOf(id, device);
  const slot = model.takeSlot();
  let read = 0;
  for (const length of numbers(options["T"], contexts)) {
    // What softmax's cache would take beyond this is minutes of prefill, not a measurement of a token.
    if (model.states.bytesPerToken > 0 && length > 16_384) continue;
    while (read < length) {
      const piece = Math.min(512, length - read);
      const ids = Int32Array.from({ length: piece }, (_, i) => (read + 7 * i) % 256);
      model.advance([slot], ids, piece);
      read += piece;
    }
    const step = (): void => {
      model.advance([slot], Int32Array.of(read % 256));
    };
    // The second step of a kind is noted down; a few more, and all memory that steps take was taken.
    for (let i = 0; i < 8; i++) step();
    const before = device.info().allocations;
    const [timing] = await interleave([local(id, device, step)], measure);
    const { bytesPerSequence, bytesPerToken } = model.states;
    yield {
      ...{ name: id, id, context: length, usPerToken: timing!.best * 1e6, medianUs: timing!.median * 1e6 },
      stateBytes: bytesPerSequence + bytesPerToken * length,
      allocations: device.info().allocations - before,
    };
  }
  model.dispose();
}

/** One token after contexts that were really read, at constant bytes of state, and what bounds it. */
export const decodeBench: Bench = {
  name: "decode",
  about:
    "microseconds a token of a 4-layer model of width 256 after contexts it really read, and beside a pass over its bytes, one thread; --ids, --T",
  columns: [
    figure("id", "name"),
    figure("context", "context", 0),
    figure("us/token", "usPerToken", 1),
    figure("state bytes", "stateBytes", 0),
    figure("allocations", "allocations", 0),
    figure("read us", "readUs", 1),
    percent("of read", "readShare"),
    percent("of peak", "fmaShare"),
  ],
  async *run(context) {
    const ids = context.options["ids"]?.split(",") ?? usual;
    if (context.devices.has(1)) for (const id of ids) yield* boundRows(id, context);
    for (const id of ids) yield* contextRows(id, context);
  },
};
