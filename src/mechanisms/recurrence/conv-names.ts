/** Convolutions of a layer have a middle axis of length 1 in files: one input channel for each output channel. */
export const convAxes: Readonly<Record<string, readonly number[]>> = {
  "qConv1d.weight": [1],
  "kConv1d.weight": [1],
  "vConv1d.weight": [1],
  "conv1d.weight": [1],
};
