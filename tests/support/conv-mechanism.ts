import { copyInto } from "../../src/autograd/move.ts";
import { Tensor } from "../../src/autograd/tensor.ts";
import { Layer, type LayerContext, type LayerOptions, type StateSpec } from "../../src/mechanisms/layer.ts";
import { absent, type Mechanism } from "../../src/mechanisms/mechanism.ts";
import { Linear } from "../../src/nn/linear.ts";
import { ShortConv } from "../../src/nn/short-conv.ts";

/** A mixer of nothing but a short convolution: the smallest mechanism made outside the library. */
class ConvLayer extends Layer {
  readonly conv: ShortConv;
  readonly out: Linear;
  readonly stateSpec: Readonly<Record<string, StateSpec>>;

  constructor({ width }: LayerOptions) {
    super();
    this.conv = new ShortConv({ channels: width, width: 4, activation: "silu" });
    this.out = new Linear(width, width);
    this.stateSpec = { conv: { shape: [3, width], cache: false } };
  }

  forward(x: Tensor, { state }: LayerContext): Tensor {
    if (state === undefined) return this.out.forward(this.conv.forward(x).y);
    const slab = state.parts["conv"]!;
    const slots = [...state.slots.dataSync()];
    const rows = slots.map((slot) => rowOf(slab, slot));
    const [B, , width] = x.shape as [number, number, number];
    const initial = new Tensor({ ...slab.layout, offset: slots[0]! * 3 * width }, [B, 3, width]);
    const { y, finalState } = this.conv.forward(x, initial);
    for (const [b, row] of rows.entries()) copyInto(row, rowOf(finalState, b));
    return this.out.forward(y);
  }
}

function rowOf(x: Tensor, i: number): Tensor {
  const { storage, offset, strides } = x.layout;
  return new Tensor(
    { storage, offset: offset + i * strides[0]!, strides: strides.slice(1) },
    x.shape.slice(1),
  );
}

const missing = absent("a convolution has no such form");

/** The mechanism object of the layer above. */
export const convMechanism: Mechanism = {
  id: "test-conv",
  title: "Short convolution",
  sources: [],
  inputs: {},
  state: {},
  traits: {
    ...{ decay: "none", write: "none", normalized: false, causal: true, full: false, prefixExact: true },
    ...{
      constantState: true,
      linearInValue: false,
      unitKeys: false,
      correctionReadsDecayed: false,
      readsBeforeWrite: false,
    },
  },
  reference: () => ({}),
  forms: { recurrent: missing, step: missing, chunkwise: missing, parallel: missing },
  reductions: [],
  layer: (options) => new ConvLayer(options),
  benchShapes: [],
};
