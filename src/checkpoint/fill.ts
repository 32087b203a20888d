import { scope } from "../autograd/scope.ts";
import { noGrad } from "../autograd/tape.ts";
import { Tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { NumericsError } from "../errors.ts";
import { sum } from "../ops/reduce/index.ts";
import { quote } from "./header-json.ts";
import type { TensorEntry } from "./safetensors.ts";
import { safetensorsBytes } from "./safetensors-dtype.ts";
import type { SafetensorsFile } from "./safetensors-file.ts";
import { toFloat32, toFloat64 } from "./safetensors-values.ts";
import type { PlacedTensor } from "./shards.ts";
import type { PlannedTensor } from "./tensor-plan.ts";

/** A planned tensor where it was found. */
export interface FoundTensor {
  readonly name: string;
  readonly planned: PlannedTensor;
  readonly placed: PlacedTensor;
}

/** How weights are read. */
export interface FillOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called with the bytes read and in all. */
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
  /** Reads weights that are NaN instead of refusing them. */
  readonly allowNaN?: boolean | undefined;
}

/** Some elements of one tensor inside a piece. */
interface Run {
  readonly found: FoundTensor;
  readonly from: number;
  readonly to: number;
  /** Where the file is read to: the device's own memory, or a length of a buffer on the way there. */
  readonly target: Uint8Array | number;
}

/** Neighbouring bytes of one file that are read at once, into as many places as there are runs. */
interface Piece {
  readonly file: SafetensorsFile;
  readonly begin: number;
  end: number;
  readonly runs: Run[];
  /** Bytes that go through a buffer. */
  staged: number;
}

/** From here on a longer read costs no less per byte. */
const pieceBytes = 2 ** 23;

/** Of these so many go through a buffer at most: they stay in a core's cache on their way. */
const stagedBytes = 2 ** 21;

/** Pieces that are read while one is looked at. */
const readsAhead = 2;

/**
 * Streams tensors from their files into parameters that have room: a few pieces are under way at a time, and nothing else
 * of the weights is held beside the device.
 *
 * @throws NumericsError for weights that are NaN, FormatError for a file that shrinks, the reason of an aborted signal.
 */
export async function fill(
  device: Device,
  tensors: readonly FoundTensor[],
  options: FillOptions = {},
): Promise<void> {
  const pieces = piecesOf(device, tensors);
  const total = pieces.reduce((sum, { begin, end }) => sum + end - begin, 0);
  const reading = options.signal === undefined ? {} : { signal: options.signal };
  const staged = pieces.reduce((most, piece) => Math.max(most, piece.staged), 0);
  const buffers = Array.from({ length: readsAhead + 1 }, () => new Uint8Array(staged));
  const read = (i: number): Promise<readonly Uint8Array[]> | undefined => {
    const piece = pieces[i];
    if (piece === undefined) return undefined;
    const targets = targetsOf(piece, buffers[i % buffers.length]!);
    const done = piece.file.readPiece(piece.begin, targets, reading).then(() => targets);
    // An error that comes while the piece before is worked on is thrown when its turn comes.
    done.catch(() => {});
    return done;
  };
  const underWay = Array.from({ length: readsAhead }, (_, i) => read(i));
  let bytes = 0;
  try {
    for (const [i, piece] of pieces.entries()) {
      const held = (await underWay[i])!;
      underWay.push(read(i + readsAhead));
      for (const [j, run] of piece.runs.entries()) take(device, run, held[j]!, options.allowNaN ?? false);
      bytes += piece.end - piece.begin;
      options.onProgress?.(bytes, total);
    }
  } finally {
    // The memory that reads fill is given back when this fails: not before they are done.
    await Promise.allSettled(underWay);
  }
}

function targetsOf({ runs }: Piece, buffer: Uint8Array): Uint8Array[] {
  let at = 0;
  return runs.map(({ target }) => {
    if (typeof target !== "number") return target;
    at += target;
    return buffer.subarray(at - target, at);
  });
}

/** Brings a run that was read to its parameters, where it is not there already, and looks for NaN. */
function take(device: Device, { found, from, to, target }: Run, bytes: Uint8Array, allowNaN: boolean): void {
  const { dtype } = found.placed;
  const width = safetensorsBytes(dtype);
  for (const segment of found.planned.segments()) {
    const begin = Math.max(from, segment.begin);
    const end = Math.min(to, segment.end);
    if (begin >= end) continue;
    const { layout } = segment.part.value;
    const offset = layout.offset + segment.offset + begin - segment.begin;
    const elements = new Tensor({ storage: layout.storage, offset, strides: [1] }, [end - begin]);
    if (typeof target === "number") {
      const own = bytes.subarray((begin - from) * width, (end - from) * width);
      put(device, elements, { dtype, shape: [end - begin], bytes: own });
    }
    if (!allowNaN) checkNumbers(device, elements, found.name);
  }
}

/** Tensors in the order of their bytes, cut and joined to pieces of a size. */
function piecesOf(device: Device, tensors: readonly FoundTensor[]): Piece[] {
  const order = tensors
    .filter(({ placed }) => placed.end > placed.begin)
    .sort((a, b) => {
      const [one, other] = [a.placed.file.name, b.placed.file.name];
      return one === other ? a.placed.begin - b.placed.begin : one < other ? -1 : 1;
    });
  const pieces: Piece[] = [];
  let piece: Piece | undefined;
  for (const found of order) {
    const { file, begin, end, dtype } = found.placed;
    const width = safetensorsBytes(dtype);
    const memory = memoryOf(device, found);
    for (let at = begin; at < end; ) {
      if (piece === undefined || piece.file !== file || piece.end !== at || roomOf(piece, memory) < width) {
        piece = { file, begin: at, end: at, runs: [], staged: 0 };
        pieces.push(piece);
      }
      const length = Math.min(end - at, Math.floor(roomOf(piece, memory) / width) * width);
      const from = (at - begin) / width;
      const target = memory?.subarray(at - begin, at - begin + length) ?? length;
      piece.runs.push({ found, from, to: from + length / width, target });
      if (memory === undefined) piece.staged += length;
      piece.end += length;
      at += length;
    }
  }
  return pieces;
}

/** Bytes that a piece has room for. */
function roomOf({ begin, end, staged }: Piece, memory: Uint8Array | undefined): number {
  const room = pieceBytes - (end - begin);
  return memory === undefined ? Math.min(room, stagedBytes - staged) : room;
}

/** The device's own memory of a tensor that needs nothing done on its way there. */
function memoryOf(device: Device, { planned, placed }: FoundTensor): Uint8Array | undefined {
  const { parts } = planned;
  const { layout, size, dtype } = parts[0]!.value;
  if (placed.dtype !== "F32" || dtype !== "float32" || parts.length > 1) return undefined;
  const view = device.view?.(layout, size);
  return view && new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

function put(device: Device, { layout, size, dtype }: Tensor, entry: TensorEntry): void {
  const memory = device.view?.(layout, size);
  if (memory instanceof Float32Array) toFloat32(entry, memory);
  else device.write(layout, dtype === "float64" ? toFloat64(entry) : toFloat32(entry));
}

function checkNumbers(device: Device, elements: Tensor, name: string): void {
  const total = scope(device, () => noGrad(() => sum(elements).dataSync()[0]!));
  // Infinities that cancel have no sum either.
  if (!Number.isNaN(total) || !elements.dataSync().some((value) => Number.isNaN(value))) return;
  throw new NumericsError(
    `[load] weights are no numbers: expected finite values in ${quote(name)}, got NaN`,
    "The file is damaged, or its training diverged; allowNaN loads it nevertheless.",
  );
}
