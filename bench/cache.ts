import { scope } from "../src/autograd/scope.ts";
import { full, tensor } from "../src/autograd/tensor.ts";
import type { Device } from "../src/device/index.ts";
import { readLimitOf } from "../src/device/limits.ts";
import { attentionOverCache, type CacheSlabs } from "../src/mechanisms/attention/cache.ts";
import { type Bench, figure, percent } from "./bench.ts";
import { interleave, local } from "./measure.ts";

/** Sequences, keys of each, and layers: what a shared cache holds, a long context, many images of the headline. */
const shapes = [
  { batch: 1, keys: 1024, layers: 1 },
  { batch: 1, keys: 16_384, layers: 4 },
  { batch: 32, keys: 392, layers: 8 },
] as const;

const elementBytes = 4;

/** Attention of one token of every sequence to all keys, layer after layer, as a step meets them. */
function decoding(
  device: Device,
  { batch, keys, layers }: (typeof shapes)[number],
  [heads, width]: readonly [number, number],
): { readonly slabs: readonly CacheSlabs[]; readonly run: () => void } {
  const make = (shape: readonly number[], value: number) => full(device, shape, value, { persistent: true });
  const integers = (list: readonly number[]) =>
    tensor(device, list, [list.length], { dtype: "int32", persistent: true });
  const slab = () => make([batch, keys, heads, width], 0.1);
  const slabs = Array.from({ length: layers }, () => ({ keys: slab(), values: slab() }));
  const q = make([batch, 1, heads, width], 0.3);
  const rows = Array.from({ length: batch }, (_, row) => row);
  const view = { slots: integers(rows), lengths: integers(rows.map(() => keys)), longest: keys };
  const run = (): void => {
    for (const layer of slabs) scope(device, () => void attentionOverCache(q, layer, view));
  };
  return { slabs, run };
}

/** What a step over a cache of keys and values reads a second, and what a pass without any work does. */
export const cacheBench: Bench = {
  name: "cache",
  about:
    "gigabytes a second of keys and values that decoding over a cache reads, beside a plain pass over them, one thread; --heads, --key",
  columns: [
    figure("sequences × keys × layers", "name"),
    figure("MB", "megabytes", 1),
    figure("GB/s", "gigabytesPerSecond", 1),
    figure("read GB/s", "readGigabytesPerSecond", 1),
    percent("of read", "share"),
  ],
  async *run({ open, measure, options }) {
    const sizes = [Number(options["heads"] ?? 8), Number(options["key"] ?? 32)] as const;
    for (const shape of shapes) {
      const device = await open(1);
      const { slabs, run } = decoding(device, shape, sizes);
      const storages = slabs.flatMap(({ keys, values }) => [keys.layout.storage, values.layout.storage]);
      const reading = readLimitOf(device, storages);
      const contenders = [local("decoding", device, run), local("read", device, reading.run)];
      const [own, read] = await interleave(contenders, measure);
      const bytes = 2 * elementBytes * shape.batch * shape.keys * shape.layers * sizes[0] * sizes[1];
      const rate = bytes / own!.best / 1e9;
      const readRate = reading.amount / read!.best / 1e9;
      yield {
        ...{ name: `${shape.batch} × ${shape.keys} × ${shape.layers}`, ...shape },
        ...{ heads: sizes[0], width: sizes[1], megabytes: bytes / 1e6 },
        ...{ gigabytesPerSecond: rate, readGigabytesPerSecond: readRate, share: rate / readRate },
      };
      device.close();
    }
  },
};
