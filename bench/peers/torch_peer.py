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


class Norm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


def linear(a, b):
    return torch.nn.Linear(a, b, bias=False)


def rotate(x):
    """Rotary positions on [B,H,T,K], halves side by side."""
    t, k = x.shape[-2:]
    inverse = 10000.0 ** (-torch.arange(0, k, 2) / k)
    angle = torch.arange(t)[:, None] * inverse
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., : k // 2], x[..., k // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def gla_chunked(q, k, v, g, chunk=16):
    """Gated linear attention with decays per channel, chunks of 16 as the exponents of one chunk allow."""
    b, h, t, kw = q.shape
    n = t // chunk
    q = q * kw**-0.5
    q, k, v, g = (x.reshape(b, h, n, chunk, -1) for x in (q, k, v, g))
    total = g.cumsum(-2)
    last = total[..., -1:, :]
    mask = torch.ones(chunk, chunk).tril()
    inner = (q * total.exp()) @ (k * (-total).exp()).transpose(-1, -2) * mask
    write = (k * (last - total).exp()).transpose(-1, -2) @ v
    decay = last.exp().transpose(-1, -2)
    state = torch.zeros(b, h, kw, v.shape[-1])
    states = []
    for i in range(n):
        states.append(state)
        state = state * decay[:, :, i] + write[:, :, i]
    o = inner @ v + (q * total.exp()) @ torch.stack(states, 2)
    return o.reshape(b, h, t, -1)


class Mixer(torch.nn.Module):
    """The layers of Linnet of the same names, projection by projection."""

    def __init__(self, kind, d, h, k, v, gated=False):
        super().__init__()
        self.kind, self.h, self.k, self.v, self.gated = kind, h, k, v, gated
        self.q, self.kp, self.vp = linear(d, h * (k + v if gated else k)), linear(d, h * k), linear(d, h * v)
        self.o = linear(h * v, d)
        if kind in ("gated-delta", "gla"):
            self.g, self.norm = linear(d, h * v), Norm(v)
        if kind == "gated-delta":
            self.a, self.b = linear(d, h), linear(d, h)
            self.log, self.bias = torch.nn.Parameter(torch.zeros(h)), torch.nn.Parameter(torch.zeros(h))
            conv = lambda c: torch.nn.Conv1d(c, c, 4, groups=c, padding=3, bias=False)
            self.conv = torch.nn.ModuleList([conv(h * k), conv(h * k), conv(h * v)])
        if kind == "gla":
            self.low, self.high = linear(d, 16), torch.nn.Linear(16, h * k)

    def heads(self, x, width):
        return x.reshape(*x.shape[:2], self.h, width).transpose(1, 2)

    def forward(self, x):
        t = x.shape[1]
        q, k, v = self.q(x), self.kp(x), self.vp(x)
        gate = None
        if self.kind == "gated-delta":
            q, k, v = (
                F.silu(c(y.transpose(1, 2))[..., :t]).transpose(1, 2) for c, y in zip(self.conv, (q, k, v))
            )
        if self.gated:
            q, gate = q.reshape(*x.shape[:2], self.h, -1).split([self.k, self.v], -1)
            q = q.reshape(*x.shape[:2], -1)
        q, k, v = self.heads(q, self.k), self.heads(k, self.k), self.heads(v, self.v)
        if self.kind == "gated-delta":
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
            g = -self.log.exp() * F.softplus(self.a(x) + self.bias)
            o = gated_delta_chunked(q, k, v, g.transpose(1, 2), self.b(x).sigmoid().transpose(1, 2))
        elif self.kind == "gla":
            g = F.logsigmoid(self.high(self.low(x))) / 16
            o = gla_chunked(q, k, v, self.heads(g, self.k))
        elif self.kind == "linear":
            o = linear_chunked(q, k, v, normalize=True)
        else:
            o = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        o = o.transpose(1, 2)
        if self.kind in ("gated-delta", "gla"):
            o = self.norm(o) * F.silu(self.g(x)).reshape(o.shape)
        if gate is not None:
            o = o * gate.sigmoid()
        return self.o(o.reshape(*x.shape[:2], -1))


class Model(torch.nn.Module):
    def __init__(self, request):
        super().__init__()
        d, hidden = request["width"], request["hidden"]
        self.table = torch.nn.Embedding(request["vocabulary"], d)
        torch.nn.init.normal_(self.table.weight, std=0.02)
        self.mixers = torch.nn.ModuleList(
            [Mixer(m["kind"], d, m["heads"], m["K"], m["V"], m["gated"]) for m in request["mixers"]]
        )
        count = len(request["mixers"])
        parts = lambda make: torch.nn.ModuleList([make() for _ in range(count)])
        self.first, self.second, self.last = parts(lambda: Norm(d)), parts(lambda: Norm(d)), Norm(d)
        self.gate, self.up = parts(lambda: linear(d, hidden)), parts(lambda: linear(d, hidden))
        self.down = parts(lambda: linear(hidden, d))

    def forward(self, ids, targets):
        x = self.table(ids)
        for i, mixer in enumerate(self.mixers):
            x = x + mixer(self.first[i](x))
            y = self.second[i](x)
            x = x + self.down[i](F.silu(self.gate[i](y)) * self.up[i](y))
        logits = self.last(x) @ self.table.weight.T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train_job(request):
    model = Model(request)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draw = lambda: torch.randint(request["vocabulary"], (request["B"], request["T"]))
    ids, targets = draw(), draw()

    def run():
        loss = model(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    run.parameters = sum(p.numel() for p in model.parameters())
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
            run = train_job(request) if request["name"] == "train" else job(request)
            answer = {"ready": run is not None, "version": torch.__version__}
            answer["parameters"] = getattr(run, "parameters", None)
        print(json.dumps(answer), flush=True)


main()
