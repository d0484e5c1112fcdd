#!/usr/bin/env python3
"""Compares rules for rounding the factors of products, from which that of NUMERICS.md ("Exact numerics") was chosen.

usage: exact_rule.py train NETWORK RULE STEPS --save WEIGHTS [--seed S]    prints losses as one JSON line
       exact_rule.py gradients NETWORK WEIGHTS RULE... [--outliers F...] [--massive F...]
                                         prints a line a rule: the error of the gradient of all parameters, relative to
                                         that with float64
networks  gpt, llama, attention (context 512), long (16,384 positions a batch), resnet20
rules     f64 f32 bf16 tf32, or fixed:BITS and options, for example fixed:14:balance
            balance   channels of weights are balanced (rule E3)
            twice     activations are rounded again, by channels, for the gradient of the weight
            forward   products of attention's gradient are not rounded
--outliers multiplies two channels by F in front of weights, which are divided by it: the function stays the same.
--massive sets two channels of the first position's embedding to F, of gpt and attention.

Needs PyTorch, and --text FILE (any text) or --images FILE (a .tar of train/<class>/*.jpg and test/<class>/*.jpg) for what
the network trains on. Products are emulated: rounded factors are multiplied in float32."""
import argparse
import io
import json
import math
import tarfile
import time

import torch
import torch.nn.functional as F

LIMIT, SLACK = 8, 2  # of the balance


class Rule:
    def __init__(self, text):
        self.kind, *options = text.split(":")
        self.fixed = self.kind == "fixed"
        self.bits = int(options.pop(0)) if self.fixed else 0
        self.balance, self.twice = "balance" in options, "twice" in options
        self.backward = "forward" not in options


rule = Rule("f32")


def exponent(largest):
    """The least e with largest < 2^e."""
    return torch.where(largest == 0, -112, torch.frexp(largest)[1].clamp(min=-112))


times_power = lambda x, e: x * torch.ldexp(torch.ones_like(e, dtype=x.dtype), e)
relative = lambda against, dims: against - against.amax(dims, keepdim=True)


def fixed_point(x, dims, against=None):
    """Rounds x 2^against to fixed point, with one exponent over dims. Returns the rounded x and the exponents."""
    scaled = x if against is None else times_power(x, against)
    e = exponent(scaled.abs().amax(dims, keepdim=True))
    limit = 2.0 ** (rule.bits - 1) - 1
    q = times_power(scaled, rule.bits - 1 - e).round().clamp(-limit, limit)
    rounded = times_power(q, e - (rule.bits - 1))
    return rounded if against is None else times_power(rounded, -against), e


def rounded_once(x):
    if rule.kind == "bf16":
        return x.bfloat16().float()
    if rule.kind == "tf32":
        bits = x.contiguous().view(torch.int32)
        return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
    return x


def weight(w, dims):
    """The rounded weight, its exponents of outputs and of input channels; dims are all but the input channels."""
    largest = w.abs().amax(dims, keepdim=True)
    e = torch.frexp(largest)[1]
    channels = torch.zeros_like(e)
    if rule.balance and (largest > 0).any():
        channels = torch.where(largest == 0, 0, (e - e[largest > 0].max() + SLACK).clamp(min=-LIMIT, max=0))
    rows = [d for d in range(w.dim()) if d != 0]
    rounded, outputs = fixed_point(w, rows, -channels)
    return rounded, outputs, channels


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        if not rule.fixed:
            x, w = rounded_once(x), rounded_once(w)
            ctx.save_for_backward(x, w)
            return x @ w.t()
        wq, outputs, channels = weight(w, 0)
        xq, rows = fixed_point(x, -1, channels)
        ctx.save_for_backward(x if rule.twice else xq, wq, outputs, rows)
        return xq @ wq.t()

    @staticmethod
    def backward(ctx, dy):
        flat = lambda t: t.reshape(-1, t.shape[-1])
        if not rule.fixed:
            x, w = ctx.saved_tensors
            dy = rounded_once(dy)
            return dy @ w, flat(dy).t() @ flat(x)
        x, w, outputs, rows = ctx.saved_tensors
        dx = fixed_point(dy, -1, relative(outputs.t(), -1))[0] @ w
        x = fixed_point(flat(x), 0)[0] if rule.twice else flat(x)
        return dx, fixed_point(flat(dy), 0, None if rule.twice else relative(flat(rows), 0))[0].t() @ x


class Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, stride, pad):
        ctx.how = stride, pad
        if not rule.fixed:
            x, w = rounded_once(x), rounded_once(w)
            ctx.save_for_backward(x, w)
            return F.conv2d(x, w, None, stride, pad)
        wq, outputs, channels = weight(w, (0, 2, 3))
        xq, images = fixed_point(x, (1, 2, 3), channels)
        ctx.save_for_backward(x if rule.twice else xq, wq, outputs, images)
        return F.conv2d(xq, wq, None, stride, pad)

    @staticmethod
    def backward(ctx, dy):
        to_input, to_filter = torch.nn.grad.conv2d_input, torch.nn.grad.conv2d_weight
        if not rule.fixed:
            x, w = ctx.saved_tensors
            dy = rounded_once(dy)
            return to_input(x.shape, w, dy, *ctx.how), to_filter(x, w.shape, dy, *ctx.how), None, None
        x, w, outputs, images = ctx.saved_tensors
        dx = to_input(x.shape, w, fixed_point(dy, (1, 2, 3), relative(outputs.view(1, -1, 1, 1), 1))[0], *ctx.how)
        x = fixed_point(x, (0, 2, 3))[0] if rule.twice else x
        dy = fixed_point(dy, (0, 2, 3), None if rule.twice else relative(images, 0))[0]
        return dx, to_filter(x, w.shape, dy, *ctx.how), None, None


class Attention(torch.autograd.Function):
    """Causal; q, k and v are (B, H, T, D)."""

    @staticmethod
    def forward(ctx, q, k, v, scale):
        mask = torch.full((q.shape[-2],) * 2, float("-inf"), dtype=q.dtype).triu(1)
        if rule.fixed:
            (qr, eq), (kr, ek), (vr, ev) = fixed_point(q, -1), fixed_point(k, -1), fixed_point(v, -1)
        else:
            qr, kr, vr, eq, ek, ev = rounded_once(q), rounded_once(k), rounded_once(v), q, k, v
        s = (qr @ kr.transpose(-1, -2)) * scale + mask
        e = (s - s.amax(-1, keepdim=True)).exp()
        r = 1 / e.sum(-1, keepdim=True)
        weights = fixed_point(e, -1, relative(ev.transpose(-1, -2), -1))[0] if rule.fixed else rounded_once(e)
        o = (weights @ vr) * r
        kept = (qr, kr, vr) if rule.backward or not rule.fixed else (q, k, v)
        ctx.save_for_backward(*kept, e * r, o, eq, ek)
        ctx.scale = scale
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, p, o, eq, ek = ctx.saved_tensors
        dot = (do * o).sum(-1, keepdim=True)
        if rule.fixed and rule.backward:
            dor, eo = fixed_point(do, -1)
            dv = fixed_point(p, -2, relative(eo, -2))[0].transpose(-1, -2) @ dor
            ds = p * (dor @ v.transpose(-1, -2) - dot) * ctx.scale
            dq = fixed_point(ds, -1, relative(ek.transpose(-1, -2), -1))[0] @ k
            return dq, fixed_point(ds, -2, relative(eq, -2))[0].transpose(-1, -2) @ q, dv, None
        cut = (lambda t: t) if rule.fixed else rounded_once
        dor = cut(do)
        ds = cut(p * (dor @ v.transpose(-1, -2) - dot) * ctx.scale)
        return ds @ k, ds.transpose(-1, -2) @ q, cut(p).transpose(-1, -2) @ dor, None


linear = lambda x, w, b=None: Linear.apply(x, w) if b is None else Linear.apply(x, w) + b


class Transformer:
    """GPT with learned positions, or LLaMA with rotary ones, on characters."""

    def __init__(self, args, layers, width, heads, context, batch, llama=False, kv_heads=None):
        self.layers, self.width, self.heads, self.context, self.samples = layers, width, heads, context, batch
        self.llama, self.kv_heads = llama, kv_heads or heads
        raw = open(args.text, "rb").read()
        table = {c: i for i, c in enumerate(sorted(set(raw)))}
        data = torch.tensor([table[c] for c in raw])
        cut = len(data) * 9 // 10
        self.vocabulary, self.parts = len(table), {"train": data[:cut], "validation": data[cut:]}

    def init(self, seed):
        g = torch.Generator().manual_seed(seed)
        normal = lambda *s, std=0.02: torch.randn(*s, generator=g) * std
        c, d, deep = self.width, self.width // self.heads, 0.02 / math.sqrt(2 * self.layers)
        hidden = 8 * c // 24 * 8 if self.llama else 4 * c
        p = {"tokens": normal(self.vocabulary, c), "norm": torch.ones(c), "head": normal(self.vocabulary, c)}
        if not self.llama:
            p["positions"], p["norm.bias"] = normal(self.context, c), torch.zeros(c)
        for l in range(self.layers):
            p[f"{l}.norm1"], p[f"{l}.norm2"] = torch.ones(c), torch.ones(c)
            p[f"{l}.qkv"] = normal((self.heads + 2 * self.kv_heads) * d, c)
            p[f"{l}.proj"] = normal(c, c, std=deep)
            p[f"{l}.up"] = normal(hidden * (2 if self.llama else 1), c)
            p[f"{l}.down"] = normal(c, hidden, std=deep)
            if not self.llama:
                for name in ("norm1", "norm2", "qkv", "proj", "up", "down"):
                    p[f"{l}.{name}.bias"] = torch.zeros(p[f"{l}.{name}"].shape[0])
        return p

    def norm(self, p, name, x):
        if self.llama:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * p[name]
        return F.layer_norm(x, (self.width,), p[name], p[name + ".bias"])

    def rotated(self, x):
        half, positions = x.shape[-1] // 2, torch.arange(x.shape[-2], dtype=x.dtype)
        angles = positions[:, None] * 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)

    def loss(self, p, batch):
        x, y = batch
        n, t, h, g, d = x.shape[0], x.shape[1], self.heads, self.kv_heads, self.width // self.heads
        stream = p["tokens"][x] + (0 if self.llama else p["positions"][:t])
        for l in range(self.layers):
            layer = lambda name, x: linear(x, p[f"{l}.{name}"], p.get(f"{l}.{name}.bias"))
            q, k, v = layer("qkv", self.norm(p, f"{l}.norm1", stream)).split([h * d, g * d, g * d], -1)
            q, k, v = (part.view(n, t, -1, d).transpose(1, 2) for part in (q, k, v))
            if self.llama:
                q, k = self.rotated(q), self.rotated(k)
            k, v = k.repeat_interleave(h // g, 1), v.repeat_interleave(h // g, 1)
            o = Attention.apply(q, k, v, 1 / math.sqrt(d))
            stream = stream + layer("proj", o.transpose(1, 2).reshape(n, t, self.width))
            a = layer("up", self.norm(p, f"{l}.norm2", stream))
            a = F.silu(a.chunk(2, -1)[0]) * a.chunk(2, -1)[1] if self.llama else F.gelu(a)
            stream = stream + layer("down", a)
        logits = linear(self.norm(p, "norm", stream), p["head"])
        return F.cross_entropy(logits.view(-1, self.vocabulary), y.reshape(-1))

    def batch(self, part, g):
        text, t = self.parts[part], self.context
        at = torch.randint(len(text) - t - 1, (self.samples,), generator=g)
        return torch.stack([text[i : i + t] for i in at]), torch.stack([text[i + 1 : i + t + 1] for i in at])

    def optimizer(self, p):
        return torch.optim.AdamW(p.values(), betas=(0.9, 0.95), weight_decay=0.1), 2e-3, 1.0

    def with_outliers(self, p, factor):
        p = {name: t.clone() for name, t in p.items()}
        channels = [7, 77 % self.width]
        for l in range(self.layers):
            for name in {f"{l}.{norm}" for norm in ("norm1", "norm2", "norm1.bias", "norm2.bias")} & p.keys():
                p[name][channels] *= factor
            for name in (f"{l}.qkv", f"{l}.up"):
                p[name][:, channels] /= factor
        return p


    def with_massive(self, p, value):
        p = {name: t.clone() for name, t in p.items()}
        p["positions"][0, [7, 77 % self.width]] = value
        return p


class ResNet20:
    samples = 64

    def __init__(self, args):
        from PIL import Image
        from torchvision.transforms.functional import pil_to_tensor

        classes, found = {}, {"train": [], "test": []}
        for m in (archive := tarfile.open(args.images)):
            if not m.isfile():
                continue
            part, name, _ = m.name.split("/")
            label = classes.setdefault(name, len(classes))
            if sum(y == label for _, y in found[part][-500:]) < 500:
                image = Image.open(io.BytesIO(archive.extractfile(m).read())).convert("RGB")
                found[part].append((pil_to_tensor(image), label))
        self.parts = {}
        for part, samples in found.items():
            images = (torch.stack([x for x, _ in samples]).float() - 122) / 60
            self.parts[part] = images, torch.tensor([y for _, y in samples])

    def init(self, seed):
        g, p = torch.Generator().manual_seed(seed), {}

        def conv(name, o, i, k):
            p[name] = torch.randn(o, i, k, k, generator=g) * math.sqrt(2 / (i * k * k))
            p[name + ".gamma"], p[name + ".beta"] = torch.ones(o), torch.zeros(o)

        conv("stem", 16, 3, 3)
        i = 16
        for stage, o in enumerate((16, 32, 64)):
            for block in range(3):
                conv(f"{stage}.{block}.a", o, i, 3)
                conv(f"{stage}.{block}.b", o, o, 3)
                if i != o:
                    conv(f"{stage}.{block}.skip", o, i, 1)
                i = o
        p["head"] = torch.randn(10, i, generator=g) * 0.05
        return p

    def loss(self, p, batch):
        def conv(name, x, stride, pad):
            y = Conv.apply(x, p[name], stride, pad)
            return F.batch_norm(y, None, None, p[name + ".gamma"], p[name + ".beta"], True)

        x = F.relu(conv("stem", batch[0].to(p["head"].dtype), 1, 1))
        for stage in range(3):
            for block in range(3):
                name, stride = f"{stage}.{block}", 2 if stage and not block else 1
                skip = conv(name + ".skip", x, stride, 0) if name + ".skip" in p else x
                x = F.relu(conv(name + ".b", F.relu(conv(name + ".a", x, stride, 1)), 1, 1) + skip)
        return F.cross_entropy(linear(x.mean((2, 3)), p["head"]), batch[1])

    def batch(self, part, g):
        images, labels = self.parts["train" if part == "train" else "test"]
        i = torch.randint(len(images), (self.samples,), generator=g)
        flip = torch.rand(len(i), generator=g) < 0.5
        return torch.where(flip[:, None, None, None], images[i].flip(3), images[i]), labels[i]

    def optimizer(self, p):
        return torch.optim.SGD(p.values(), momentum=0.9, weight_decay=5e-4), 0.1, 1e9

    def with_outliers(self, p, factor):
        p = {name: t.clone() for name, t in p.items()}
        channels = [3, 11]
        for name in [name[:-2] for name in p if name.endswith(".a")]:
            p[name + ".a.gamma"][channels] *= factor
            p[name + ".a.beta"][channels] *= factor
            p[name + ".b"][:, channels] /= factor
        return p


NETWORKS = {
    "gpt": lambda args: Transformer(args, 4, 128, 4, 64, 16),
    "llama": lambda args: Transformer(args, 4, 128, 4, 64, 16, llama=True, kv_heads=2),
    "attention": lambda args: Transformer(args, 3, 64, 4, 512, 4),
    "long": lambda args: Transformer(args, 2, 64, 2, 1024, 16),
    "resnet20": ResNet20,
}


def train(network, args):
    p = {name: t.requires_grad_() for name, t in network.init(args.seed).items()}
    optimizer, lr, clip = network.optimizer(p)
    g, losses, began = torch.Generator().manual_seed(100 + args.seed), [], time.time()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, (step + 1) / 30) * (0.1 + 0.45 * (1 + math.cos(math.pi * step / args.steps)))
        loss = network.loss(p, network.batch("train", g))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), clip)
        optimizer.step()
        losses.append(loss.item())
    seconds, last = time.time() - began, losses[-max(40, args.steps // 20) :]
    with torch.no_grad():
        validation = sum(network.loss(p, network.batch("validation", g)).item() for _ in range(6)) / 6
    torch.save({name: t.detach() for name, t in p.items()}, args.save)
    result = {"network": args.network, "rule": args.rule, "seed": args.seed, "steps": args.steps}
    result |= {"loss": sum(last) / len(last), "validation": validation, "seconds": seconds}
    print(json.dumps(result), flush=True)


def compare(network, p0, rules, title):
    global rule
    batch, reference = network.batch("train", torch.Generator().manual_seed(5)), None
    for text in ["f64", *rules]:
        rule = Rule(text)
        p = {name: t.to(torch.float64 if text == "f64" else torch.float32).requires_grad_() for name, t in p0.items()}
        loss = network.loss(p, batch)
        gradients = torch.autograd.grad(loss, list(p.values()))
        whole = torch.cat([g.double().flatten() for g in gradients])
        if reference is None:
            reference, expected = whole, loss.item()
            continue
        error = ((whole - reference).norm() / reference.norm()).item()
        print(f"{title:16} {text:22} loss {loss.item() - expected:+.1e}  gradient {error:.2e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", help="a text to train on")
    parser.add_argument("--images", help="a .tar of images to train on")
    parser.add_argument("--threads", type=int, default=2)
    commands = parser.add_subparsers(dest="command", required=True)
    training, comparing = commands.add_parser("train"), commands.add_parser("gradients")
    for command in training, comparing:
        command.add_argument("network", choices=NETWORKS)
    training.add_argument("rule")
    training.add_argument("steps", type=int)
    training.add_argument("--save", required=True)
    training.add_argument("--seed", type=int, default=1)
    comparing.add_argument("weights")
    comparing.add_argument("rules", nargs="+", metavar="rule")
    comparing.add_argument("--outliers", type=float, nargs="*", default=[])
    comparing.add_argument("--massive", type=float, nargs="*", default=[])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    network = NETWORKS[args.network](args)
    if args.command == "train":
        global rule
        rule = Rule(args.rule)
        return train(network, args)
    weights = torch.load(args.weights)
    compare(network, weights, args.rules, args.network)
    for factor in args.outliers:
        compare(network, network.with_outliers(weights, factor), args.rules, f"{args.network} x{factor:g}")
    for value in args.massive:
        compare(network, network.with_massive(weights, value), args.rules, f"{args.network} {value:g}")


if __name__ == "__main__":
    main()
