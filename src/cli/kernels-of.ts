import { scope } from "../autograd/scope.ts";
import { noGrad } from "../autograd/tape.ts";
import { zeros } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { type DecoderConfig, expandPattern } from "../models/config.ts";
import { Decoder } from "../models/decoder.ts";

/** The kernels that one kind of mixer really ran. */
export interface MixerKernels {
  readonly mechanism: string;
  readonly layers: number;
  /** For many tokens at once. */
  readonly prefill: readonly string[];
  /** For one token on a carried state. */
  readonly step: readonly string[];
}

/** Model width of the trial; widths per head stay those of the model, for which kernels are chosen. */
const trialWidth = 64;

/** Runs a layer of each kind on a few tokens, weights all zero, and notes what the device was asked for. */
export function kernelsOf(config: DecoderConfig, device: Device): readonly MixerKernels[] {
  const layers = expandPattern(config, { who: "info", causal: true });
  const kinds = new Map<string, number[]>();
  for (const [i, { mechanism, options }] of layers.entries()) {
    const kind = `${mechanism.id} ${JSON.stringify(options)}`;
    kinds.set(kind, [...(kinds.get(kind) ?? []), i]);
  }
  return [...kinds.values()].map((members) => {
    const { mechanism, options } = layers[members[0]!]!;
    const all = { ...config.mixer, ...options };
    // Widths that follow from the model's must be given the model's.
    const width = "keyWidth" in all && "valueWidth" in all ? trialWidth : config.width;
    const trial = {
      ...config,
      width,
      layers: 1,
      vocabularySize: 8,
      pattern: [{ id: mechanism, ...options }],
    };
    const decoder = new Decoder({
      ...trial,
      feedForward: { kind: "none" },
      positions: config.positions ?? { kind: "none" },
    });
    return { mechanism: mechanism.id, layers: members.length, ...record(decoder, device) };
  });
}

function record(decoder: Decoder, device: Device): Pick<MixerKernels, "prefill" | "step"> {
  const [mixer] = decoder.mixers;
  for (const parameter of mixer!.parameters()) parameter.set(device, new Float32Array(parameter.size));
  const states = decoder.createState(device, 1);
  const run = device.run.bind(device);
  try {
    const [prefill, step] = [8, 1].map((tokens) => {
      const keys = new Set<string>();
      device.run = (dispatch) => {
        keys.add(dispatch.kernel.key);
        run(dispatch);
      };
      scope(device, () =>
        noGrad(() => {
          const [state] = states.view([0], tokens);
          const x = zeros(device, [1, tokens, decoder.config.width]);
          mixer!.forward(x, { training: false, causal: true, state: state! });
          states.advance([0], tokens);
        }),
      );
      return [...keys].sort();
    });
    return { prefill: prefill!, step: step! };
  } finally {
    device.run = run;
    states.dispose();
    decoder.dispose();
  }
}
