import { scope } from "../autograd/scope.ts";
import { noGrad } from "../autograd/tape.ts";
import { Tensor } from "../autograd/tensor.ts";
import type { Device } from "../device/device.ts";
import { NumericsError } from "../errors.ts";
import { sum } from "../ops/reduce/index.ts";
import { quote } from "./header-json.ts";
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
  /** Bytes from the beginning of the piece. */
  readonly at: number;
}

/** Neighbouring bytes of one file that are read at once. */
interface Piece {
  readonly file: SafetensorsFile;
  readonly begin: number;
  end: number;
  readonly runs: Run[];
  /** Memory of the device that the file is read into as it is. */
  readonly straight?: Uint8Array;
}

/** Small enough to stay in a core's cache on its way to the device, large enough that a read costs little. */
const pieceBytes = 2 ** 21;

const infinity = 0x7f800000;
const magnitude = 0x7fffffff;

/** Pieces that are read while one is looked at. */
const readsAhead = 2;

/** Nothing of a straight piece lies in a buffer, so that fewer of them are better. */
const straightPieceBytes = 2 ** 23;

/** From here on a read of its own is cheaper than a way through a buffer. */
const straightBytes = 2 ** 18;

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
  const buffers = Array.from({ length: readsAhead + 1 }, () => new Uint8Array(pieceBytes));
  const read = (i: number): Promise<Uint8Array> | undefined => {
    const piece = pieces[i];
    if (piece === undefined) return undefined;
    const target = piece.straight ?? buffers[i % buffers.length]!.subarray(0, piece.end - piece.begin);
    const done = piece.file.readPiece(piece.begin, target, reading).then(() => target);
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
      for (const run of piece.runs) take(device, piece, run, held, options.allowNaN ?? false);
      bytes += held.length;
      options.onProgress?.(bytes, total);
    }
  } finally {
    // The memory that reads fill is given back when this fails: not before they are done.
    await Promise.allSettled(underWay);
  }
}

/** Brings a run of a piece that was read to its parameter, where it is not there already. */
function take(device: Device, piece: Piece, run: Run, bytes: Uint8Array, allowNaN: boolean): void {
  if (piece.straight === undefined) put(device, run, bytes, allowNaN);
  else if (!allowNaN && sumIsNaN(run)) {
    checkNumbers(new Float32Array(bytes.buffer, bytes.byteOffset, run.to - run.from), run);
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
    if (memory !== undefined) {
      pieces.push(...straightPieces(found, memory));
      piece = undefined;
      continue;
    }
    for (let at = begin; at < end; ) {
      const room = piece === undefined ? 0 : pieceBytes - (piece.end - piece.begin);
      if (piece === undefined || piece.file !== file || piece.end !== at || room < width) {
        piece = { file, begin: at, end: at, runs: [] };
        pieces.push(piece);
      }
      const left = pieceBytes - (piece.end - piece.begin);
      const length = Math.min(end - at, Math.floor(left / width) * width);
      const from = (at - begin) / width;
      piece.runs.push({ found, from, to: from + length / width, at: piece.end - piece.begin });
      piece.end += length;
      at += length;
    }
  }
  return pieces;
}

/** The device's own memory of a tensor that needs nothing done on its way there. */
function memoryOf(device: Device, { planned, placed }: FoundTensor): Uint8Array | undefined {
  const { parts } = planned;
  const { layout, size, dtype } = parts[0]!.value;
  const isPlain = placed.dtype === "F32" && dtype === "float32" && parts.length === 1;
  if (!isPlain || placed.end - placed.begin < straightBytes) return undefined;
  const view = device.view?.(layout, size);
  return view && new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
}

function straightPieces(found: FoundTensor, memory: Uint8Array): Piece[] {
  const { file, begin, end } = found.placed;
  const pieces: Piece[] = [];
  for (let at = begin; at < end; at += straightPieceBytes) {
    const to = Math.min(end, at + straightPieceBytes);
    const run: Run = { found, from: (at - begin) / 4, to: (to - begin) / 4, at: 0 };
    pieces.push({ file, begin: at, end: to, runs: [run], straight: memory.subarray(at - begin, to - begin) });
  }
  return pieces;
}

function put(device: Device, run: Run, bytes: Uint8Array, allowNaN: boolean): void {
  const { from, to, at } = run;
  const { planned, placed } = run.found;
  const length = (to - from) * safetensorsBytes(placed.dtype);
  const entry = { dtype: placed.dtype, shape: [to - from], bytes: bytes.subarray(at, at + length) };
  const isWide = planned.parts[0]!.value.dtype === "float64";
  const values = isWide ? toFloat64(entry) : toFloat32(entry);
  if (!allowNaN) checkNumbers(values, run);
  for (const segment of planned.segments()) {
    const begin = Math.max(from, segment.begin);
    const end = Math.min(to, segment.end);
    if (begin >= end) continue;
    const { storage, offset } = segment.part.value.layout;
    const target = { storage, offset: offset + segment.offset + begin - segment.begin };
    device.write(target, values.subarray(begin - from, end - from));
  }
}

/** Whether the device finds no sum of elements that it holds: one is NaN, or infinities cancel. */
function sumIsNaN({ found, from, to }: Run): boolean {
  const { layout, device } = found.planned.parts[0]!.value;
  const elements = new Tensor({ ...layout, offset: layout.offset + from, strides: [1] }, [to - from]);
  return scope(device, () => noGrad(() => Number.isNaN(sum(elements).dataSync()[0])));
}

function checkNumbers(values: Float32Array | Float64Array, { found }: Run): void {
  const hasNaN =
    values instanceof Float32Array ? holdsNaN(values) : values.some((value) => Number.isNaN(value));
  if (!hasNaN) return;
  throw new NumericsError(
    `[load] weights are no numbers: expected finite values in ${quote(found.name)}, got NaN`,
    "The file is damaged, or its training diverged; allowNaN loads it nevertheless.",
  );
}

/** The bits of a NaN without its sign lie above those of infinity. Compared as integers, without a branch for each. */
function holdsNaN(values: Float32Array): boolean {
  const bits = new Int32Array(values.buffer, values.byteOffset, values.length);
  const even = bits.length & ~3;
  let found = 0;
  for (let i = 0; i < even; i += 4) {
    found |= infinity - (bits[i]! & magnitude);
    found |= infinity - (bits[i + 1]! & magnitude);
    found |= infinity - (bits[i + 2]! & magnitude);
    found |= infinity - (bits[i + 3]! & magnitude);
  }
  for (let i = even; i < bits.length; i++) found |= infinity - (bits[i]! & magnitude);
  return found < 0;
}
