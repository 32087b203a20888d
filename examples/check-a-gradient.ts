/** Compares the gradients of a function with finite differences, on the float64 device that every test can use. */
import { gradCheck, hostDevice, matmul, Random, silu, tensor } from "linnet";

const device = hostDevice({ dtype: "float64" });
const random = new Random(3);
const a = tensor(device, random.normal(new Float64Array(12)), [3, 4], { requiresGrad: true });
const b = tensor(device, random.normal(new Float64Array(20)), [4, 5], { requiresGrad: true });
const direction = (input: number, element: number): number => Math.cos(17 * input + 3 * element);

for (const row of gradCheck(device, ({ a, b }) => ({ y: silu(matmul(a!, b!)) }), { a, b }, direction)) {
  console.log(`${row.input}: relative error ${row.relativeError.toExponential(1)}`);
}
