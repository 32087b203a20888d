/**
 * The smallest ONNX files a peer needs, written as protocol buffers by hand (onnx.proto3 of ONNX 1.17).
 * Only what a graph of float32 operators takes: nodes, inputs, outputs.
 */

/** One operator of a graph. */
export interface OnnxNode {
  readonly op: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Integer attributes. */
  readonly ints?: Readonly<Record<string, readonly number[]>>;
}

/** A graph of float32 values. */
export interface OnnxGraph {
  readonly nodes: readonly OnnxNode[];
  readonly inputs: Readonly<Record<string, readonly number[]>>;
  readonly outputs: Readonly<Record<string, readonly number[]>>;
}

function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  while (rest > 127) {
    bytes.push((rest & 127) | 128);
    rest = Math.floor(rest / 128);
  }
  bytes.push(rest);
  return bytes;
}

const number = (field: number, value: number): number[] => [...varint(field << 3), ...varint(value)];
const bytes = (field: number, value: readonly number[]): number[] => [
  ...varint((field << 3) | 2),
  ...varint(value.length),
  ...value,
];
const text = (field: number, value: string): number[] => bytes(field, [...new TextEncoder().encode(value)]);

const attribute = (name: string, values: readonly number[]): number[] => [
  ...text(1, name),
  ...values.flatMap((value) => number(8, value)),
  ...number(20, 7),
];

const node = ({ op, inputs, outputs, ints = {} }: OnnxNode): number[] => [
  ...inputs.flatMap((name) => text(1, name)),
  ...outputs.flatMap((name) => text(2, name)),
  ...text(4, op),
  ...Object.entries(ints).flatMap(([name, values]) => bytes(5, attribute(name, values))),
];

function value(name: string, shape: readonly number[]): number[] {
  const axes = shape.flatMap((length) => bytes(1, number(1, length)));
  const tensor = [...number(1, 1), ...bytes(2, axes)];
  return [...text(1, name), ...bytes(2, bytes(1, tensor))];
}

/** The file of a graph: IR version 10, opset 21. */
export function onnxFile({ nodes, inputs, outputs }: OnnxGraph): Uint8Array {
  const graph = [
    ...nodes.flatMap((each) => bytes(1, node(each))),
    ...text(2, "bench"),
    ...Object.entries(inputs).flatMap(([name, shape]) => bytes(11, value(name, shape))),
    ...Object.entries(outputs).flatMap(([name, shape]) => bytes(12, value(name, shape))),
  ];
  const opset = [...text(1, ""), ...number(2, 21)];
  return Uint8Array.from([...number(1, 10), ...bytes(7, graph), ...bytes(8, opset)]);
}
