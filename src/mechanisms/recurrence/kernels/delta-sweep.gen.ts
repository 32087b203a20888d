/**
 * Writes the sweep of one panel of 16 value columns over a tile of tokens. The variants differ in what the decay is.
 * One loop over the rows of the state writes the token before, decays, retrieves and reads. The tiers differ in its order:
 * 256-bit pairs need all loads and then all stores side by side, V8's 15 128-bit registers one vector after another. They
 * spill even so where every channel may be slow or fast: there writing and decaying is a loop of its own.
 */

/** `ordered` lets flags choose which state the correction and the output read; its decay is one a key channel. */
type Variant = "None" | "Scalar" | "Key" | "Ordered";

const vectors = [0, 1, 2, 3] as const;
const at = (i: number): string => (i === 0 ? "" : `, ${16 * i}`);
const each = (text: (i: number) => string): string[] => vectors.map(text);
const indent = (lines: readonly string[], depth = 1): string[] =>
  lines.map((line) => `${"  ".repeat(depth)}${line}`);

const header = `// One pass of a state panel over a tile of tokens, per kind of decay.
import { fma } from "../../../../device/wasm/kernels/simd.as";
import { READ_FIRST, slowMask, UNDECAYED } from "../delta-job.as";
import { Work } from "../delta-work.as";
`;

const perChannel = (variant: Variant): boolean => variant === "Key" || variant === "Ordered";
const loadGate = ["const a = v128.load32_splat(gate);", "const slow = slowMask(a);"];

/** How a row is decayed: not, by a gate known to be slow or fast, or by one that may be either. */
type Gate = "none" | "slow" | "fast" | "any";

const decayed: Readonly<Record<Gate, (i: number) => string>> = {
  none: (i) => `e${i}`,
  slow: (i) => `fma(a, e${i}, e${i})`,
  fast: (i) => `f32x4.mul(a, e${i})`,
  any: (i) => `fma(a, e${i}, v128.and(e${i}, slow))`,
};

/** A row of the state takes what the token before wrote and then the decay: e is the row between the two. */
function updateRow(gate: Gate, together: boolean): string[] {
  const write = (i: number): string => `const e${i} = fma(w, v128.load(u${at(i)}), v128.load(s${at(i)}));`;
  const decay = (i: number): string => `const s${i} = ${decayed[gate](i)};`;
  const store = (i: number): string => `v128.store(s, s${i}${at(i)});`;
  if (together) return [...each(write), ...each(decay), ...each(store)];
  return vectors.flatMap((i) => [write(i), decay(i), store(i)]);
}

/** Adds a row to the retrieval r and the read-out p. */
function readRow(variant: Variant): string[] {
  const chosen = (i: number, mask: string): string =>
    variant === "Ordered" ? `v128.bitselect(e${i}, s${i}, ${mask})` : `s${i}`;
  return [
    "const k = v128.load32_splat(key);",
    ...each((i) => `r${i} = fma(k, ${chosen(i, "early")}, r${i});`),
    "const x = v128.load32_splat(query);",
    ...each((i) => `p${i} = fma(x, ${chosen(i, "first")}, p${i});`),
    "key += 4;",
    "query += 4;",
  ];
}

/** One loop over the rows: write the token before, decay, retrieve, read. */
function fusedRows(variant: Variant, kind: Gate, together: boolean): string[] {
  const load = { none: [], slow: loadGate.slice(0, 1), fast: loadGate.slice(0, 1), any: loadGate };
  return [
    "while (key < end) {",
    ...indent([
      "const w = v128.load32_splat(before);",
      ...load[kind],
      ...updateRow(kind, together),
      ...readRow(variant),
      "s += 64;",
      "before += 4;",
      ...(perChannel(variant) ? ["gate += 4;"] : []),
    ]),
    "}",
  ];
}

function fused(variant: Variant, together: boolean): string[] {
  if (variant === "None") return ["let before = last;", ...fusedRows(variant, "none", together)];
  const gate = `let gate = work.gate + ${variant === "Scalar" ? "offset4" : "offset"};`;
  if (variant !== "Scalar") return ["let before = last;", gate, ...fusedRows(variant, "any", together)];
  return [
    ...["let before = last;", gate, "if (load<i32>(gate) < 0) {"],
    ...indent(fusedRows(variant, "slow", together)),
    "} else {",
    ...indent(fusedRows(variant, "fast", together)),
    "}",
  ];
}

/** A loop that retrieves and reads from a state that is already written and decayed. */
const readOnly = [
  "while (key < end) {",
  ...indent([...each((i) => `const s${i} = v128.load(s${at(i)});`), ...readRow("None"), "s += 64;"]),
  "}",
];

/** The written value and the output of the token, once its retrieval r and read-out p are complete. */
const finish = [
  "const b = v128.load32_splat(work.beta + offset4);",
  "const c = v128.load32_splat(work.overlap + offset4);",
  ...each((i) => `const u${i} = f32x4.mul(b, f32x4.sub(v128.load(v${at(i)}), r${i}));`),
  ...each((i) => `v128.store(u, u${i}${at(i)});`),
  "const m = f32x4.splat(work.scale);",
  ...each((i) => `v128.store(o, f32x4.mul(m, fma(c, u${i}, p${i}))${at(i)});`),
  "v += vRow;",
  "o += oRow;",
  "last = work.write + offset;",
];

function token(rows: readonly string[]): string[] {
  return [
    "const offset = (<usize>t) * rowBytes;",
    "const offset4 = (<usize>t) << 2;",
    ...each((i) => `let r${i} = f32x4.splat(0), p${i} = r${i};`),
    "let s = panel, key = work.erase + offset, query = work.query + offset;",
    "const end = key + ((<usize>keyWidth) << 2);",
    ...rows,
    ...finish,
  ];
}

function sweep(variant: Variant, name: string, rows: readonly string[], next: readonly string[]): string {
  const masks = [
    "const early = i32x4.splat(work.flags & UNDECAYED ? -1 : 0);",
    "const first = i32x4.splat(work.flags & READ_FIRST ? -1 : 0);",
  ];
  return [
    `function ${name}(work: Work, panel: usize, keyWidth: i32, v: usize, vRow: usize, o: usize, oRow: usize): void {`,
    ...indent([
      "const rowBytes = (<usize>work.stride) << 2;",
      "const u = work.u;",
      "memory.fill(u, 0, 64);",
      ...(variant === "Ordered" ? masks : []),
      "let last = work.zeros;",
      "for (let t = 0; t < work.tokens; t++) {",
      ...indent([...next, ...token(rows)]),
      "}",
      "writeNone(panel, keyWidth, last, u, 0);",
    ]),
    "}",
    "",
  ].join("\n");
}

/** S += k uᵀ of the token before, then the decay of the next one. */
function write(variant: "None" | "Key"): string {
  return [
    `function write${variant}(s: usize, keyWidth: i32, key: usize, u: usize, gate: usize): void {`,
    ...indent([
      "const end = key + ((<usize>keyWidth) << 2);",
      "while (key < end) {",
      ...indent([
        "const w = v128.load32_splat(key);",
        ...(variant === "Key" ? loadGate : []),
        ...updateRow(variant === "Key" ? "any" : "none", false),
        "s += 64;",
        "key += 4;",
        ...(variant === "Key" ? ["gate += 4;"] : []),
      ]),
      "}",
    ]),
    "}",
    "",
  ].join("\n");
}

/** The functions of a variant; the last is what the rest of the room calls: the sweep that suits the tier. */
function variantText(variant: Variant): string[] {
  const narrow =
    variant === "Key"
      ? [
          write("Key"),
          sweep(variant, "narrowKey", readOnly, [
            "writeKey(panel, keyWidth, last, u, work.gate + (<usize>t) * rowBytes);",
          ]),
        ]
      : [sweep(variant, `narrow${variant}`, fused(variant, false), [])];
  const passed = "work, panel, keyWidth, v, vRow, o, oRow";
  const entry = [
    `export function sweep${variant}(work: Work, panel: usize, keyWidth: i32, v: usize, vRow: usize, o: usize, oRow: usize): void {`,
    `  if (TIER < 2) narrow${variant}(${passed});`,
    `  else wide${variant}(${passed});`,
    "}",
    "",
  ].join("\n");
  return [...narrow, sweep(variant, `wide${variant}`, fused(variant, true), []), entry];
}

/** The text of generated/delta-sweep.as.ts. */
export function generate(): string {
  const variants: readonly Variant[] = ["None", "Scalar", "Key", "Ordered"];
  return [header, write("None"), ...variants.flatMap(variantText)].join("\n");
}
