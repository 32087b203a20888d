import { readSafetensors, writeSafetensors } from "../checkpoint/safetensors.ts";
import { fromValues, toFloat32, toFloat64, toInt32 } from "../checkpoint/safetensors-values.ts";
import { FormatError } from "../errors.ts";
import type { HistoryMark } from "./history.ts";
import type { LanguageModel } from "./language-model.ts";

const version = "1";

/**
 * The state of one slot as a safetensors file: parts `state.LAYER.NAME`, `position`, the remembered `ids`, `logits`, and in
 * the metadata a fingerprint of the model, so that no other model takes it for its own.
 */
export async function saveState(
  model: LanguageModel,
  slot: number,
  { position, ids }: HistoryMark,
  logits: Float32Array | undefined,
): Promise<Uint8Array> {
  const entries = new Map([
    ["position", fromValues(Float64Array.of(position), [1])],
    ["ids", fromValues(ids, [ids.length])],
  ]);
  if (logits !== undefined) entries.set("logits", fromValues(Float32Array.from(logits), [logits.length]));
  // All reads are issued before any is waited for: the session may go on meanwhile.
  const reads = [...model.states.partsOf(slot)].map(([name, part]) => ({ name, part, values: part.data() }));
  for (const { name, part, values } of reads)
    entries.set(`state.${name}`, fromValues(await values, part.shape));
  return writeSafetensors(entries, { format: "linnet-state", version, model: fingerprint(model) });
}

/** Puts a saved state into a slot; nothing is changed when the bytes do not fit. */
export function loadState(
  model: LanguageModel,
  slot: number,
  bytes: Uint8Array,
): { readonly history: HistoryMark; readonly logits: Float32Array | undefined } {
  const { metadata, tensors } = readSafetensors(bytes, { name: "session state" });
  if (metadata["format"] !== "linnet-state" || metadata["version"] !== version) {
    throw new FormatError(
      `[session] these bytes are no state of this version: expected linnet-state ${version}, got ${metadata["format"]} ${metadata["version"]}`,
    );
  }
  if (metadata["model"] !== fingerprint(model)) {
    throw new FormatError(
      `[session] the state belongs to another model: expected ${fingerprint(model)}, got ${metadata["model"]}`,
      "Load it into a session of the model that saved it.",
    );
  }
  const history = historyIn(tensors);
  const { states, device } = model;
  // Before room is made: a position that is wrong may be a large one.
  for (const [name, shape] of states.shapesAt(history.position)) {
    const entry = tensors.get(`state.${name}`);
    if (entry !== undefined && entry.shape.join() === shape.join()) continue;
    throw new FormatError(
      `[session] part ${name} of the state does not fit: expected [${shape.join(", ")}], got ${entry ? `[${entry.shape.join(", ")}]` : "none"}`,
    );
  }
  states.place(slot, history.position);
  for (const [name, part] of states.partsOf(slot))
    device.write(part.layout, Float32Array.from(toFloat32(tensors.get(`state.${name}`)!)));
  const logits = tensors.get("logits");
  return { history, logits: logits && Float32Array.from(toFloat32(logits)) };
}

function historyIn(tensors: ReturnType<typeof readSafetensors>["tensors"]): HistoryMark {
  const [ids, at] = [tensors.get("ids"), tensors.get("position")];
  if (ids === undefined || at === undefined)
    throw new FormatError("[session] the state does not say where it stands: expected ids and position");
  const position = toFloat64(at)[0]!;
  const list = toInt32(ids);
  if (Number.isInteger(position) && position >= list.length) return { position, ids: list };
  throw new FormatError(
    `[session] the state stands nowhere: expected a position >= ${list.length}, got ${position}`,
  );
}

/** FNV-1a over the configuration and the first and last values of every weight. */
export function fingerprint(model: LanguageModel): string {
  let hash = 0xcbf29ce484222325n;
  const add = (text: string): void => {
    for (let i = 0; i < text.length; i++)
      hash = BigInt.asUintN(64, (hash ^ BigInt(text.charCodeAt(i))) * 0x100000001b3n);
  };
  add(JSON.stringify(model.decoder.config));
  for (const [name, parameter] of model.decoder.namedParameters()) {
    const { layout } = parameter.value;
    const { device } = parameter.value;
    const count = Math.min(8, parameter.size);
    const end = { storage: layout.storage, offset: layout.offset + parameter.size - count };
    add(`${name} ${device.readSync(layout, count).join(" ")} ${device.readSync(end, count).join(" ")}`);
  }
  return hash.toString(16).padStart(16, "0");
}
