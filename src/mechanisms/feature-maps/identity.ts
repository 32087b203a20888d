import type { FeatureMap } from "./feature-map.ts";

/** x itself: the state of keys as they are. Sums of products have no sign, so it goes without a normaliser. */
export const identityMap: FeatureMap = {
  id: "identity",
  equation: "x",
  width: (keyWidth) => keyWidth,
  isPositive: false,
  isDifferentiable: true,
  apply: (x) => x,
};
