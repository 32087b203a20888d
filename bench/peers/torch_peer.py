"""The peer PyTorch: reads one JSON request a line, answers one a line. Written from the equations; chunked forms."""

import json
import sys
import time

import torch
import torch.nn.functional as F

B = 1


def heads(shape):
    return torch.randn(*shape) * 0.5


def linear_chunked(q, k, v, chunk=64, normalize=False):
    """Causal linear attention [B,H,T,K]: chunks inside, a running state between."""
    if normalize:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        v = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    b, h, t, kw = q.shape
    n = t // chunk
    q, k, v = (x.reshape(b, h, n, chunk, -1) for x in (q, k, v))
    kv = k.transpose(-1, -2) @ v
    state = kv.cumsum(2) - kv
    mask = torch.ones(chunk, chunk).tril()
    o = q @ state + ((q @ k.transpose(-1, -2)) * mask) @ v
    o = o.reshape(b, h, t, -1)
    return o[..., :-1] / (o[..., -1:] + 1e-6) if normalize else o


def gated_delta_chunked(q, k, v, g, beta, chunk=64):
    """Gated delta rule in WY form, the way Hugging Face's PyTorch path computes it: row by row inverse, loop over chunks."""
    b, h, t, kw = q.shape
    vw = v.shape[-1]
    n = t // chunk
    q = q * kw**-0.5
    q, k, v = (x.reshape(b, h, n, chunk, -1) for x in (q, k, v))
    g = g.reshape(b, h, n, chunk).cumsum(-1)
    beta = beta.reshape(b, h, n, chunk, 1)
    decay = (g.unsqueeze(-1) - g.unsqueeze(-2)).tril().exp().tril()
    strict = torch.ones(chunk, chunk, dtype=torch.bool).triu()
    attn = -((k * beta) @ k.transpose(-1, -2) * decay).masked_fill(strict, 0)
    for i in range(1, chunk):
        row = attn[..., i, :i].clone()
        attn[..., i, :i] = row + (row.unsqueeze(-1) * attn[..., :i, :i].clone()).sum(-2)
    attn = attn + torch.eye(chunk)
    u = attn @ (v * beta)
    w = attn @ (k * beta * g.exp().unsqueeze(-1))
    state = torch.zeros(b, h, kw, vw)
    causal = torch.ones(chunk, chunk, dtype=torch.bool).triu(1)
    outs = []
    for i in range(n):
        qi, ki, gi = q[:, :, i], k[:, :, i], g[:, :, i]
        a = (qi @ ki.transpose(-1, -2) * decay[:, :, i]).masked_fill(causal, 0)
        new = u[:, :, i] - w[:, :, i] @ state
        outs.append((qi * gi.exp().unsqueeze(-1)) @ state + a @ new)
        last = gi[..., -1:]
        state = state * last.exp().unsqueeze(-1) + (ki * (last - gi).exp().unsqueeze(-1)).transpose(-1, -2) @ new
    return torch.stack(outs, 2).reshape(b, h, t, vw)


def job(request):
    name, h, t, kw, vw = (request[x] for x in ("name", "H", "T", "K", "V"))
    needs = request["backward"]
    q, k, v = heads((B, h, t, kw)), heads((B, h, t, kw)), heads((B, h, t, vw))
    if name in ("delta", "gated-delta"):
        k = F.normalize(k, dim=-1)
        q = F.normalize(q, dim=-1)
    g = -torch.rand(B, h, t) * (0.2 if name == "gated-delta" else 0)
    beta = torch.rand(B, h, t)
    leaves = [q, k, v, g, beta]
    for x in leaves:
        x.requires_grad_(needs)
    if name == "linear-bare":
        f = lambda: linear_chunked(q, k, v)
    elif name == "linear":
        f = lambda: linear_chunked(q, k, v, normalize=True)
    elif name in ("delta", "gated-delta"):
        f = lambda: gated_delta_chunked(q, k, v, g, beta)
    elif name == "softmax":
        f = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        return None
    seed = torch.randn(B, h, t, vw)

    def run():
        if not needs:
            with torch.no_grad():
                f()
            return
        for x in leaves:
            x.grad = None
        f().backward(seed)

    return run


def main():
    run = None
    for line in sys.stdin:
        request = json.loads(line)
        if "repetitions" in request:
            begin = time.perf_counter()
            for _ in range(request["repetitions"]):
                run()
            answer = {"seconds": time.perf_counter() - begin}
        else:
            torch.set_num_threads(request["threads"])
            run = job(request)
            answer = {"ready": run is not None, "version": torch.__version__}
        print(json.dumps(answer), flush=True)


main()
