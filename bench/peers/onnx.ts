/**
 * The smallest ONNX files a peer needs, written as protocol buffers by hand (onnx.proto3 of ONNX 1.17).
 * Only what a graph of float32 operators takes: nodes, inputs, outputs.
 */

/** One operator of a graph. */
export interface OnnxNode {
  readonly op: string;
  /** Set of operators it belongs to; the standard one unless given. */
  readonly domain?: string;
  /** Names of values; empty for an optional input that is left out. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Attributes: lists of whole numbers, single ones, or words. */
  readonly ints?: Readonly<Record<string, readonly number[] | number | string>>;
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

function attribute(name: string, value: readonly number[] | number | string): number[] {
  if (typeof value === "string") return [...text(1, name), ...text(4, value), ...number(20, 3)];
  if (typeof value === "number") return [...text(1, name), ...number(3, value), ...number(20, 2)];
  return [...text(1, name), ...value.flatMap((each) => number(8, each)), ...number(20, 7)];
}

const node = ({ op, domain, inputs, outputs, ints = {} }: OnnxNode): number[] => [
  ...inputs.flatMap((name) => text(1, name)),
  ...outputs.flatMap((name) => text(2, name)),
  ...text(4, op),
  ...Object.entries(ints).flatMap(([name, values]) => bytes(5, attribute(name, values))),
  ...(domain === undefined ? [] : text(7, domain)),
];

function value(name: string, shape: readonly number[]): number[] {
  const axes = shape.flatMap((length) => bytes(1, number(1, length)));
  const tensor = [...number(1, 1), ...bytes(2, axes)];
  return [...text(1, name), ...bytes(2, bytes(1, tensor))];
}

/** The file of a graph: IR version 10, opset 21, and the first of every other set. */
export function onnxFile({ nodes, inputs, outputs }: OnnxGraph): Uint8Array {
  const graph = [
    ...nodes.flatMap((each) => bytes(1, node(each))),
    ...text(2, "bench"),
    ...Object.entries(inputs).flatMap(([name, shape]) => bytes(11, value(name, shape))),
    ...Object.entries(outputs).flatMap(([name, shape]) => bytes(12, value(name, shape))),
  ];
  const opset = (domain: string, version: number): number[] =>
    bytes(8, [...text(1, domain), ...number(2, version)]);
  const domains = new Set(nodes.flatMap((each) => each.domain ?? []));
  const opsets = [...opset("", 21), ...[...domains].flatMap((domain) => opset(domain, 1))];
  return Uint8Array.from([...number(1, 10), ...bytes(7, graph), ...opsets]);
}
