import { hostDevice } from "../src/device/index.ts";
import { LanguageModel } from "../src/generate/language-model.ts";
import type { DecoderConfig } from "../src/models/config.ts";
import { Decoder } from "../src/models/decoder.ts";
import { initialize } from "../src/nn/module.ts";
import { Random } from "../src/tensor/random.ts";
import { bytes } from "../src/text/bytes.ts";
import { type Bench, figure, numbers } from "./bench.ts";
import { interleave, local } from "./measure.ts";

const contexts = [64, 1024, 16_384, 65_536];
const usual = ["linear", "gla", "gated-delta", "kda", "softmax"];

function modelOf(id: string): DecoderConfig {
  return {
    ...{ vocabularySize: 257, width: 256, layers: 4, heads: 4, pattern: [id] },
    ...{ mixer: { keyWidth: 64, valueWidth: 64 }, tied: true },
  };
}

/** One token after contexts that were really read, at constant bytes of state. */
export const decodeBench: Bench = {
  name: "decode",
  about:
    "microseconds a token of a 4-layer model of width 256 after contexts it really read, one thread; --ids, --T",
  columns: [
    figure("id", "name"),
    figure("context", "context", 0),
    figure("us/token", "usPerToken", 1),
    figure("state bytes", "stateBytes", 0),
    figure("allocations", "allocations", 0),
  ],
  async *run(context) {
    const device = context.devices.get(1) ?? hostDevice();
    for (const id of context.options["ids"]?.split(",") ?? usual) {
      const decoder = new Decoder(modelOf(id));
      initialize(decoder, device, new Random(1));
      const model = new LanguageModel(decoder, bytes(), device);
      const slot = model.takeSlot();
      let read = 0;
      for (const length of numbers(context.options["T"], contexts)) {
        // What softmax's cache would take beyond this is minutes of prefill, not a measurement of a token.
        if (model.states.bytesPerToken > 0 && length > 16_384) continue;
        while (read < length) {
          const piece = Math.min(512, length - read);
          model.advance(
            [slot],
            Int32Array.from({ length: piece }, (_, i) => (read + 7 * i) % 256),
            piece,
          );
          read += piece;
        }
        const step = (): void => {
          model.advance([slot], Int32Array.of(read % 256), 1);
        };
        step();
        const before = device.info().allocations;
        const [timing] = await interleave([local(id, step)], context.measure);
        const { bytesPerSequence, bytesPerToken } = model.states;
        yield {
          ...{
            name: id,
            id,
            context: length,
            usPerToken: timing!.best * 1e6,
            medianUs: timing!.median * 1e6,
          },
          ...{
            stateBytes: bytesPerSequence + bytesPerToken * length,
            allocations: device.info().allocations - before,
          },
        };
      }
      model.dispose();
    }
  },
};
