import { fullTraits } from "../attention/full-forms.ts";
import type { Mechanism, Reference } from "../mechanism.ts";
import { benchShapes } from "../rules.ts";
import { defaultLandmarks, forms, inputs, type NystromFormOptions } from "./forms.ts";
import { NystromLayer } from "./layer.ts";
import { reference as nystromReference } from "./reference.ts";

const reference: Reference = (given, options: NystromFormOptions) => {
  const [T, Tk] = [given["q"]!.shape[1]!, given["k"]!.shape[1]!];
  const landmarks = options.landmarks ?? Math.max(1, Math.min(defaultLandmarks, T, Tk));
  return nystromReference(given, { ...options, landmarks });
};

/** Nyström attention: softmax by way of landmarks. */
export const nystrom: Mechanism = {
  id: "nystrom",
  title: "Nyström attention",
  equation: "softmax(qk̃ᵀ) softmax(q̃k̃ᵀ)⁺ softmax(q̃kᵀ) v, tildes means of segments",
  use: "Encoders of any length with smooth attention; as many landmarks as tokens are softmax itself. Not causal.",
  sources: [
    {
      title: "Nyströmformer: A Nyström-Based Algorithm for Approximating Self-Attention",
      id: "arXiv:2102.03902v3",
      equations: "attention by landmarks, the iterative pseudo-inverse",
    },
  ],
  inputs,
  state: {},
  traits: { ...fullTraits, normalized: false },
  ownAxes: () => ({ W: 5 }),
  reference,
  forms,
  reductions: [
    {
      to: "softmax",
      when: "there are as many landmarks as tokens",
      inputs: ({ q, k, v }) => {
        const given = { q: q!, k: k!, v: v! };
        const ownOptions: NystromFormOptions = { landmarks: k!.shape[1]! };
        return { own: given, other: given, ownOptions, otherOptions: { causal: false } };
      },
    },
  ],
  layer: (options) => new NystromLayer(options),
  benchShapes,
};
