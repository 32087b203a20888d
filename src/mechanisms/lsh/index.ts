import type { Mechanism, Reference } from "../mechanism.ts";
import { benchShapes } from "../rules.ts";
import { defaultGroup, forms, inputs, type LshFormOptions } from "./forms.ts";
import { LshLayer } from "./layer.ts";
import { reference as lshReference } from "./reference.ts";

const reference: Reference = (given, options: LshFormOptions) =>
  lshReference(given, { ...options, chunk: options.group ?? defaultGroup });

/** Reformer's attention: tokens meet where hashing brings them together. */
export const lsh: Mechanism = {
  id: "lsh",
  title: "LSH attention",
  equation: "softmax over the keys that hash alike, rounds joined by their log-sum-exp",
  use: "Softmax over few relevant keys of long sequences, where queries can be keys; decodes statelessly.",
  sources: [
    {
      title: "Reformer: The Efficient Transformer",
      id: "arXiv:2001.04451v2",
      equations: "hashing, sorting and chunking, several rounds (section 2)",
    },
  ],
  inputs,
  state: {},
  traits: {
    decay: "none",
    write: "none",
    normalized: true,
    causal: true,
    full: true,
    prefixExact:
      "Borders of groups depend on how all tokens hash, so that what follows a prefix changes which of its tokens meet, though never makes one see the future.",
    constantState: false,
    linearInValue: true,
    unitKeys: false,
    correctionReadsDecayed: false,
    readsBeforeWrite: false,
  },
  ownAxes: ({ T }) => ({ rounds: 4, half: Math.max(1, Math.ceil(T! / 128)) }),
  reference,
  forms,
  reductions: [],
  layer: (options) => new LshLayer(options),
  benchShapes,
};
