/** A small network learns a sine wave by plain gradient descent; memory does not grow from step to step. */
import {
  backward,
  initialize,
  Linear,
  Module,
  mean,
  openWasm,
  Random,
  scope,
  silu,
  square,
  subtract,
  type Tensor,
  tensor,
} from "linnet";

class Network extends Module {
  readonly first = new Linear(1, 32, { bias: true });
  readonly second = new Linear(32, 1, { bias: true });

  forward(x: Tensor): Tensor {
    return this.second.forward(silu(this.first.forward(x)));
  }
}

const device = await openWasm();
const network = new Network();
initialize(network, device, new Random(1));

const points = Array.from({ length: 64 }, (_, i) => (i / 63) * 6 - 3);
const x = tensor(device, points, [64, 1]);
const y = tensor(
  device,
  points.map((point) => Math.sin(point)),
  [64, 1],
);

const lossOf = (): Tensor => mean(square(subtract(network.forward(x), y)));

for (let step = 0; step <= 1000; step++) {
  const loss = await scope(device, async () => {
    const value = lossOf();
    backward(value);
    return await value.item();
  });
  if (step % 250 === 0)
    console.log(`step ${step}: loss ${loss.toFixed(4)}, ${device.info().bytes.persistent} bytes held`);
  for (const parameter of network.parameters()) {
    const weight = await parameter.value.data();
    const gradient = await parameter.value.grad!.data();
    parameter.set(
      device,
      weight.map((value, i) => value - 0.1 * gradient[i]!),
    );
  }
}
device.close();
