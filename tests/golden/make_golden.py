#!/usr/bin/env python3
"""Writes the golden files for golden_test.cpp and distance_test.cpp: results of networks in PyTorch, in float64.

usage: make_golden.py [FOLDER]        (default: the folder of this script; needs PyTorch 1.13 or later)

Each file <case>.safetensors holds, in float32 and in this project's layouts (images NHWC, filters OHWI):
  logits      of the first forward pass, in training mode
  losses      mean loss before each of ten optimiser steps on the same batch (the first is the loss of `logits`)
  grad/<name> gradient of the mean loss at the start, for every parameter
  eval_logits after the ten steps, in evaluation mode
Each file distance_<case>.safetensors is of a network of full depth, in float64, with several batches <b>:
  <b>/losses          mean loss before each of ten optimiser steps on the same batch
  <b>/weights/<name>  at most 16 values of every parameter after the steps, at even distances
  <b>/float32         distances of PyTorch's float32 from them: of the losses and of the weights (see distances())
Parameters, inputs and targets are not stored: both sides compute them by the formula of hashed()."""
import json
import os
import struct
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def hashed(name, count):
    """Returns 24-bit integers, a function of a name and an index: FNV-1a of the name, then a multiplicative mix."""
    key = 0xCBF29CE484222325
    for c in name.encode():
        key = (key ^ c) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        x = np.uint64(key) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        x = (x ^ (x >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return x >> np.uint64(40)


def symmetric(name, count):
    return hashed(name, count).astype(np.float64) / 2**23 - 1.0  # exact in float32


def initial(name, shape):
    """Weights uniform within 1 / sqrt(fan_in); gains of norms 1 + u / 4; other vectors u / 4."""
    u = symmetric(name, int(np.prod(shape)))
    if len(shape) > 1:
        u = u / np.sqrt(np.float64(np.prod(shape[1:])))
    else:
        u = u / 4 + (1 if name.endswith("weight") else 0)
    return u.astype(np.float32).astype(np.float64).reshape(shape)


class Block(nn.Module):
    def __init__(self, cin, width, stride, bottleneck):
        super().__init__()
        cout = 4 * width if bottleneck else width
        shapes = ([(cin, width, 1, 1), (width, width, 3, stride), (width, cout, 1, 1)] if bottleneck else
                  [(cin, width, 3, stride), (width, cout, 3, 1)])
        self.count = len(shapes)
        for i, (a, b, k, s) in enumerate(shapes, 1):
            setattr(self, f"conv{i}", nn.Conv2d(a, b, k, s, k // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(b))
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.count:
                y = F.relu(y)
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, widths, bottleneck, imagenet, classes, blocks=None):
        super().__init__()
        self.imagenet = imagenet
        self.conv1 = nn.Conv2d(3, widths[0], 7 if imagenet else 3, 2 if imagenet else 1, 3 if imagenet else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        cin, self.stages = widths[0], len(widths)
        for i, w in enumerate(widths):
            layer = []
            for b in range(blocks[i] if blocks else 1):
                layer.append(Block(cin, w, 2 if i and not b else 1, bottleneck))
                cin = 4 * w if bottleneck else w
            setattr(self, f"layer{i + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x.permute(0, 3, 1, 2))))
        if self.imagenet:
            x = F.max_pool2d(x, 3, 2, 1)
        for i in range(self.stages):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


def attend(q, k, v):
    """(B, T, H, D) each; causal."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    s = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    mask = torch.ones(s.shape[-2:], dtype=torch.bool).tril()
    return (s.masked_fill(~mask, float("-inf")).softmax(-1) @ v).transpose(1, 2).flatten(2)


class Vgg(nn.Module):
    """VGG-16 with batch norm and one linear layer."""

    def __init__(self, classes):
        super().__init__()
        layers, cin = [], 3
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                layers += [nn.Conv2d(cin, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
                cin = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(512, classes))

    def forward(self, x):
        return self.classifier(self.features(x.permute(0, 3, 1, 2)).flatten(1))


class GptBlock(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(c, 3 * c), "c_proj": nn.Linear(c, c)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(c, 4 * c), "c_proj": nn.Linear(4 * c, c)})

    def forward(self, x):
        q, k, v = (t.unflatten(2, (self.heads, -1)) for t in self.attn["c_attn"](self.ln_1(x)).chunk(3, 2))
        x = x + self.attn["c_proj"](attend(q, k, v))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, c, vocabulary, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, c), nn.Embedding(context, c)
        self.h = nn.Sequential(*[GptBlock(c, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(c)

    def forward(self, x):
        y = self.h(self.wte(x) + self.wpe.weight[: x.shape[1]])
        return F.linear(self.ln_f(y), self.wte.weight)


class RmsNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


def rotary(x):
    T, D = x.shape[1], x.shape[3]
    angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(0, D, 2) / D)
    cos, sin = angle.cos()[:, None, :], angle.sin()[:, None, :]
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class LlamaBlock(nn.Module):
    def __init__(self, c, heads, kv_heads, hidden):
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads
        kv = c // heads * kv_heads
        lin = lambda i, o: nn.Linear(i, o, bias=False)
        self.input_layernorm = RmsNorm(c)
        self.self_attn = nn.ModuleDict({"q_proj": lin(c, c), "k_proj": lin(c, kv), "v_proj": lin(c, kv), "o_proj": lin(c, c)})
        self.post_attention_layernorm = RmsNorm(c)
        self.mlp = nn.ModuleDict({"gate_proj": lin(c, hidden), "up_proj": lin(c, hidden), "down_proj": lin(hidden, c)})

    def forward(self, x):
        n, a = self.input_layernorm(x), self.self_attn
        q = rotary(a["q_proj"](n).unflatten(2, (self.heads, -1)))
        k, v = (a[p](n).unflatten(2, (self.kv_heads, -1)) for p in ("k_proj", "v_proj"))
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 2) for t in (rotary(k), v))
        x = x + a["o_proj"](attend(q, k, v))
        return x + self.perceptron(self.post_attention_layernorm(x))

    def perceptron(self, x):
        m = self.mlp
        return m["down_proj"](F.silu(m["gate_proj"](x)) * m["up_proj"](x))


class Llama(nn.Module):
    def __init__(self, layers, heads, kv_heads, c, hidden, vocabulary):
        super().__init__()
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(vocabulary, c),
            "layers": nn.Sequential(*[LlamaBlock(c, heads, kv_heads, hidden) for _ in range(layers)]),
            "norm": RmsNorm(c)})
        self.lm_head = nn.Linear(c, vocabulary, bias=False)

    def forward(self, x):
        return self.lm_head(self.model["norm"](self.model["layers"](self.model["embed_tokens"](x))))


def ours(tensor):
    """Returns a filter (O, I, H, W) as (O, H, W, I), and other tensors unchanged."""
    return tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor


def write_safetensors(path, tensors, real_type="F32"):
    header, parts, end = {}, [], 0
    for name, t in tensors.items():
        real = t.is_floating_point()
        data = np.ascontiguousarray(t.detach().numpy().astype({"F32": "<f4", "F64": "<f8"}[real_type] if real else "<i8"))
        header[name] = {"dtype": real_type if real else "I64", "shape": list(t.shape), "data_offsets": [end, end + data.nbytes]}
        parts.append(data.tobytes())
        end += data.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(parts)


def decayed(model, weight_decay):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


def fill_initial(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = torch.from_numpy(initial(name, tuple(ours(p).shape)))
            p.copy_(values.permute(0, 3, 1, 2) if p.dim() == 4 else values)


def make(folder, case, model, x, y, optimizer, smoothing=0.0):
    fill_initial(model)
    opt, out, losses = optimizer(model), {}, []
    model.train()
    for step in range(10):
        opt.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, -2), y.flatten(), label_smoothing=smoothing)
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out["logits"] = logits
            for name, p in model.named_parameters():
                out["grad/" + name] = ours(p.grad).clone()
        opt.step()
    out["losses"] = torch.stack(losses)
    out["eval_logits"] = model.eval()(x)
    write_safetensors(os.path.join(folder, case + ".safetensors"), out)
    print(case, "losses", float(losses[0]), "->", float(losses[-1]))


def sampled(name, p):
    """Returns at most 16 values at even distances, in this project's order. Biases of keys are left out: no loss depends
    on them, so their gradients are rounding noise, which AdamW scales to steps of the full learning rate."""
    p = ours(p.detach()).flatten().double()
    if name.endswith("c_attn.bias"):
        q, _, v = p.chunk(3)
        p = torch.cat((q, v))
    return p[:: max(1, p.numel() // 16)][:16].clone()


def ten_steps(model, x, y, optimizer, dtype):
    """Returns the losses and a sample of the weights in float64, whatever the type of the steps."""
    fill_initial(model)
    for name, p in model.named_parameters():
        if name.endswith("bn3.weight"):  # At full gains one step of 16 blocks turns a difference of 1e-6 into 1e-2.
            p.data /= 8
    model = model.to(dtype).train()
    opt, losses = optimizer(model), []
    x = x.to(dtype) if x.is_floating_point() else x
    for _ in range(10):
        opt.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        losses.append(loss.detach().double())
        opt.step()
    return torch.stack(losses), {n: sampled(n, p) for n, p in model.named_parameters()}


def distances(run, exact):
    """Returns root mean squares of the differences: of the ten losses, and of all sampled weights."""
    weights = torch.cat([run[1][n] - exact[1][n] for n in exact[1]])
    return torch.stack([(run[0] - exact[0]).square().mean().sqrt(), weights.square().mean().sqrt()])


def make_distance(folder, case, model, batches, optimizer):
    out = {}
    for b, (x, y) in enumerate(batches):
        exact = ten_steps(model(), x, y, optimizer, torch.float64)
        torch.set_default_dtype(torch.float32)
        float32 = distances(ten_steps(model(), x, y, optimizer, torch.float32), exact)
        torch.set_default_dtype(torch.float64)
        out.update({f"{b}/losses": exact[0], f"{b}/float32": float32})
        out.update({f"{b}/weights/{n}": w for n, w in exact[1].items()})
        print(case, b, "losses", float(exact[0][0]), "->", float(exact[0][-1]), "float32", float32.tolist(), flush=True)
    write_safetensors(os.path.join(folder, f"distance_{case}.safetensors"), out, "F64")


def images(n, side, name="input"):
    return torch.from_numpy(symmetric(name, n * side * side * 3).reshape(n, side, side, 3))


def integers(name, shape, limit):
    return torch.from_numpy((hashed(name, int(np.prod(shape))) % np.uint64(limit)).astype(np.int64).reshape(shape))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    sgd = lambda nesterov: lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, weight_decay=1e-3, nesterov=nesterov)
    adamw = lambda m: torch.optim.AdamW(decayed(m, 0.1), 3e-3, betas=(0.9, 0.95))
    make(folder, "resnet_basic", ResNet([8, 16], False, False, 10), images(4, 16), integers("target", (4,), 10), sgd(False))
    make(folder, "resnet_bottleneck", ResNet([4, 8], True, True, 10), images(4, 32), integers("target", (4,), 10), sgd(True), 0.1)
    tokens, targets = integers("input", (3, 12), 40), integers("target", (3, 12), 40)
    make(folder, "gpt", Gpt(2, 3, 24, 40, 16), tokens, targets, adamw)
    make(folder, "llama", Llama(2, 6, 2, 24, 32, 40), tokens, targets, adamw)

    gentle = lambda m: torch.optim.SGD(m.parameters(), 1e-3, momentum=0.9, weight_decay=1e-3)
    of_images = lambda b, side: (images(16, side, f"input{b}"), integers(f"target{b}", (16,), 10))
    of_tokens = lambda b: (integers(f"input{b}", (16, 32), 256), integers(f"target{b}", (16, 32), 256))
    resnet50 = lambda: ResNet([64, 128, 256, 512], True, True, 10, [3, 4, 6, 3])
    make_distance(folder, "resnet50", resnet50, [of_images(b, 64) for b in range(3)], gentle)
    make_distance(folder, "vgg16", lambda: Vgg(10), [of_images(b, 32) for b in range(3)], gentle)
    make_distance(folder, "gpt2", lambda: Gpt(12, 12, 192, 256, 32), [of_tokens(b) for b in range(6)], adamw)
    make_distance(folder, "llama", lambda: Llama(12, 12, 4, 192, 512, 256), [of_tokens(b) for b in range(6)], adamw)


if __name__ == "__main__":
    main()
