import { Job, rowsAt } from "./job.as";

/** Tokens of one unit. */
const TOKENS: i32 = 16;

// delta [B,T,HQ] = Σ_v dO·O - dLse: what every score gradient of a query subtracts. One unit is 16 tokens.
export function attention_delta_backward(args: usize, begin: i32, end: i32, scratch: usize): void {
  const job = changetype<Job>(args);
  const last = min(end * TOKENS, job.batch * job.time);
  for (let at = begin * TOKENS; at < last; at++) {
    const batch = at / job.time;
    const token = at % job.time;
    for (let head = 0; head < job.queryHeads; head++) {
      const o = rowsAt(job.output, job.outputBatch, job.outputToken, job.outputHead, batch, token, head);
      const dO = rowsAt(job.dOutput, job.dOutputBatch, job.dOutputToken, job.dOutputHead, batch, token, head);
      const statistic = (<usize>at * job.queryHeads + head) << 2;
      let sum = dot(o, dO, job.valueWidth);
      if (job.hasDLse) sum -= load<f32>(job.dLse + statistic);
      store<f32>(job.delta + statistic, sum);
    }
  }
}

function dot(x: usize, y: usize, n: i32): f32 {
  let wide = f32x4.splat(0);
  let i: i32 = 0;
  for (; i + 4 <= n; i += 4) {
    const at = <usize>i << 2;
    wide = f32x4.add(wide, f32x4.mul(v128.load(x + at), v128.load(y + at)));
  }
  let sum = f32x4.extract_lane(wide, 0) + f32x4.extract_lane(wide, 1) + (f32x4.extract_lane(wide, 2) + f32x4.extract_lane(wide, 3));
  for (; i < n; i++) sum += load<f32>(x + (<usize>i << 2)) * load<f32>(y + (<usize>i << 2));
  return sum;
}
