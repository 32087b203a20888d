import type { Device } from "../device/device.ts";
import { NumericsError } from "../errors.ts";
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
}

/** Small enough to stay in a core's cache on its way to the device, large enough that a read costs little. */
const pieceBytes = 2 ** 21;

/**
 * Streams tensors from their files into parameters that have room: two pieces are under way at a time, and nothing else
 * of the weights is held beside the device.
 *
 * @throws NumericsError for weights that are NaN, FormatError for a file that shrinks, the reason of an aborted signal.
 */
export async function fill(
  device: Device,
  tensors: readonly FoundTensor[],
  options: FillOptions = {},
): Promise<void> {
  const pieces = piecesOf(tensors);
  const total = pieces.reduce((sum, { begin, end }) => sum + end - begin, 0);
  const reading = options.signal === undefined ? {} : { signal: options.signal };
  const buffers = [new Uint8Array(pieceBytes), new Uint8Array(pieceBytes)];
  const read = (i: number): Promise<Uint8Array> | undefined => {
    const piece = pieces[i];
    if (piece === undefined) return undefined;
    const target = buffers[i % 2]!.subarray(0, piece.end - piece.begin);
    const done = piece.file.readPiece(piece.begin, target, reading).then(() => target);
    // An error that comes while the piece before is worked on is thrown when its turn comes.
    done.catch(() => {});
    return done;
  };
  let next = read(0);
  let bytes = 0;
  for (const [i, piece] of pieces.entries()) {
    const held = (await next)!;
    next = read(i + 1);
    for (const run of piece.runs) put(device, run, held, options.allowNaN ?? false);
    bytes += held.length;
    options.onProgress?.(bytes, total);
  }
}

/** Tensors in the order of their bytes, cut and joined to pieces of a size. */
function piecesOf(tensors: readonly FoundTensor[]): Piece[] {
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

function put(device: Device, { found, from, to, at }: Run, bytes: Uint8Array, allowNaN: boolean): void {
  const { planned, placed, name } = found;
  const length = (to - from) * safetensorsBytes(placed.dtype);
  const entry = { dtype: placed.dtype, shape: [to - from], bytes: bytes.subarray(at, at + length) };
  const isWide = planned.parts[0]!.value.dtype === "float64";
  const values = isWide ? toFloat64(entry) : toFloat32(entry);
  if (!allowNaN && holdsNaN(values)) {
    throw new NumericsError(
      `[load] weights are no numbers: expected finite values in ${quote(name)}, got NaN`,
      "The file is damaged, or its training diverged; allowNaN loads it nevertheless.",
    );
  }
  for (const segment of planned.segments()) {
    const begin = Math.max(from, segment.begin);
    const end = Math.min(to, segment.end);
    if (begin >= end) continue;
    const { storage, offset } = segment.part.value.layout;
    const target = { storage, offset: offset + segment.offset + begin - segment.begin };
    device.write(target, values.subarray(begin - from, end - from));
  }
}

/** Sums of products with 0, which are NaN where a value is NaN or infinite; only then each is looked at. */
function holdsNaN(values: Float32Array | Float64Array): boolean {
  let [a, b, c, d] = [0, 0, 0, 0];
  let i = 0;
  for (; i + 3 < values.length; i += 4) {
    a += values[i]! * 0;
    b += values[i + 1]! * 0;
    c += values[i + 2]! * 0;
    d += values[i + 3]! * 0;
  }
  for (; i < values.length; i++) a += values[i]! * 0;
  return a + b + c + d !== 0 && values.some((value) => Number.isNaN(value));
}
