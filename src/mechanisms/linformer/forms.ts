import type { Tensor, Tensors } from "../../autograd/tensor.ts";
import { ShapeError } from "../../errors.ts";
import { matmul } from "../../ops/matmul/index.ts";
import { permute } from "../../ops/permute/index.ts";
import { reshape } from "../../ops/reshape/index.ts";
import { slice } from "../../ops/split/index.ts";
import { type Attend, type FullInputs, fullForms } from "../attention/full-forms.ts";
import type { FormOptions, InputRule } from "../mechanism.ts";

const same = (normal: number): number => normal;

/** Inputs of Linformer: `keyProjection` E and `valueProjection` F, one matrix for all heads where G is 1. */
export const inputs: Readonly<Record<string, InputRule>> = {
  q: { axes: "B T H K", domain: "any", sample: same },
  k: { axes: "B T H K", domain: "any", sample: same },
  v: { axes: "B T H V", domain: "any", sample: same },
  keyProjection: { axes: "G M L", domain: "any", sample: same },
  valueProjection: { axes: "G M L", domain: "any; keyProjection unless given", optional: true, sample: same },
};

/** Why it is not causal. */
export const why = {
  reason: "each of its projected keys is a sum over all tokens, later ones too",
  instead: "Take sliding-window, or linear attention such as gated-delta, for causal sequences.",
};

/** E x over the tokens: `projection [G,M,L]`, `x [B,T,H,W]` → `[B,M,H,W]` by the first T columns. */
function projected(projection: Tensor, x: Tensor): Tensor {
  const [B, T, H, W] = x.shape as [number, number, number, number];
  const [G, M] = projection.shape as [number, number];
  const columns = slice(projection, 2, 0, T);
  if (G === 1) return reshape(matmul(reshape(columns, [M, T]), reshape(x, [B, T, H * W])), [B, M, H, W]);
  return permute(matmul(columns, permute(x, [0, 2, 1, 3])), [0, 2, 1, 3]);
}

/** softmax(scale · q (E k)ᵀ) (F v): attention to M sums of tokens instead of T tokens. */
export function attendProjected(
  { q, k, v }: FullInputs,
  keyProjection: Tensor,
  valueProjection: Tensor,
  scale: number | undefined,
  attend: Attend,
): Tensor {
  const keys = projected(keyProjection, k);
  return attend({ q, k: keys, v: projected(valueProjection, v) }, { scale, causal: false });
}

function check(who: string, given: Tensors): void {
  const { k, keyProjection } = given as { k: Tensor; keyProjection: Tensor };
  const [G, M, L] = keyProjection.shape as [number, number, number];
  const [T, H] = k.shape.slice(1) as [number, number];
  if (G !== 1 && G !== H) {
    throw new ShapeError(
      `[${who}] keyProjection belongs to every head or to all: expected G 1 or H ${H}, got G ${G}`,
    );
  }
  checkLength(who, T, L);
  if (M <= T) return;
  throw new ShapeError(
    `[${who}] keyProjection is longer than the sequence: expected M <= T ${T}, got M ${M} of [G=${G}, M=${M}, L=${L}]`,
    "Project to fewer rows, or take softmax: it costs less here.",
  );
}

/** Throws where a projection has fewer columns than there are tokens. */
export function checkLength(who: string, T: number, L: number): void {
  if (T <= L) return;
  throw new ShapeError(
    `[${who}] keyProjection has too few columns: expected L >= T ${T}, got L ${L}`,
    "Its columns are learned for positions; train with a longer L or cut the sequence.",
  );
}

/** The forms of Linformer; costs 4·T·M·(K + V) flops a head and row. */
export const forms = fullForms<FormOptions>({
  ...{ id: "linformer", inputs, why, check },
  compute: (rows, { keyProjection, valueProjection }, { scale }, attend) =>
    attendProjected(rows, keyProjection!, valueProjection ?? keyProjection!, scale, attend),
});
