#!/usr/bin/env python3
"""Writes the golden files t5_relu.safetensors and t5_gated.safetensors for t5_golden_test.cpp: small T5s in PyTorch, in
float64, in evaluation form (no dropout), with sources of different lengths and targets that are ignored at their ends.

usage: make_t5.py [FOLDER]        (default: the folder of this script; needs PyTorch 1.13 or later)

Each holds logits, losses, grad/<name> and eval_logits, as make_golden.py describes them. Parameters, inputs and targets
are not stored: both sides compute them by hashed(). Buckets of relative positions are computed by logarithms, as in
the paper's implementation."""
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import decayed, initial, integers, write_safetensors

HEADS, CHANNELS, WIDTH, HIDDEN, BUCKETS, FARTHEST = 3, 24, 7, 40, 8, 16
SYMBOLS, SOURCE, TARGET, BATCH = 40, 12, 9, 3


def bucket(distance, both):
    """Of keys at these distances after the query."""
    count = BUCKETS // 2 if both else BUCKETS
    first = (distance > 0).long() * count if both else 0
    far = distance.abs() if both else (-distance).clamp(min=0)
    exact = count // 2
    steps = torch.log(far.clamp(min=1) / exact) / math.log(FARTHEST / exact) * (count - exact)
    return first + torch.where(far < exact, far, (exact + (steps + 1e-9).long()).clamp(max=count - 1))


class RmsNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(CHANNELS))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        inner = HEADS * WIDTH
        self.q, self.k, self.v = (nn.Linear(CHANNELS, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, CHANNELS, bias=False)

    def forward(self, x, seen, bias):
        heads = lambda y: y.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
        weights = torch.softmax(heads(self.q(x)) @ heads(self.k(seen)).transpose(2, 3) + bias, -1)
        return self.o((weights @ heads(self.v(seen))).transpose(1, 2).flatten(2))


class Perceptron(nn.Module):
    def __init__(self, gated):
        super().__init__()
        self.gated = gated
        for name in ("wi_0", "wi_1") if gated else ("wi",):
            setattr(self, name, nn.Linear(CHANNELS, HIDDEN, bias=False))
        self.wo = nn.Linear(HIDDEN, CHANNELS, bias=False)

    def forward(self, x):
        return self.wo(F.gelu(self.wi_0(x), approximate="tanh") * self.wi_1(x) if self.gated else F.relu(self.wi(x)))


class Sublayer(nn.Module):
    def __init__(self, name, branch):
        super().__init__()
        self.layer_norm = RmsNorm()
        self.name = name
        setattr(self, name, branch)

    def forward(self, x, *others):
        y = self.layer_norm(x)
        return x + getattr(self, self.name)(y, *[y if other is None else other for other in others])


class Block(nn.Module):
    def __init__(self, decoder, gated):
        super().__init__()
        self.layer = nn.ModuleList([Sublayer("SelfAttention", Attention())] +
                                   ([Sublayer("EncDecAttention", Attention())] if decoder else []) +
                                   [Sublayer("DenseReluDense", Perceptron(gated))])


class Stack(nn.Module):
    def __init__(self, layers, decoder, gated):
        super().__init__()
        self.block = nn.ModuleList(Block(decoder, gated) for _ in range(layers))
        self.block[0].layer[0].SelfAttention.relative_attention_bias = nn.Embedding(BUCKETS, HEADS)
        self.final_layer_norm = RmsNorm()
        self.decoder = decoder

    def forward(self, x, mask, encoded=None, beyond=None):
        place = torch.arange(x.shape[1])
        table = self.block[0].layer[0].SelfAttention.relative_attention_bias
        bias = table(bucket(place[None] - place[:, None], not self.decoder)).permute(2, 0, 1)[None] + mask
        for block in self.block:
            x = block.layer[0](x, None, bias)
            if self.decoder:
                x = block.layer[1](x, encoded, beyond)
            x = block.layer[-1](x)
        return self.final_layer_norm(x)


class T5(nn.Module):
    def __init__(self, gated):
        super().__init__()
        self.shared = nn.Embedding(SYMBOLS, CHANNELS)
        self.encoder, self.decoder = Stack(2, False, gated), Stack(3, True, gated)
        self.lm_head = nn.Linear(CHANNELS, SYMBOLS, bias=False) if gated else None

    def forward(self, source, target, lengths):
        beyond = torch.where(torch.arange(SOURCE)[None] < lengths[:, None], 0.0, -math.inf)[:, None, None]
        later = torch.full((TARGET, TARGET), -math.inf).triu(1)
        x = self.decoder(self.shared(target), later, self.encoder(self.shared(source), beyond), beyond)
        return self.lm_head(x) if self.lm_head else F.linear(x / math.sqrt(CHANNELS), self.shared.weight)


def make(folder, case, model, inputs, y):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(initial(name, tuple(p.shape))))
    optimizer = torch.optim.AdamW(decayed(model, 0.1), 3e-3, betas=(0.9, 0.95))
    out, losses = {}, []
    for step in range(10):
        optimizer.zero_grad()
        logits = model(*inputs)
        loss = F.cross_entropy(logits.flatten(0, -2), y.flatten(), ignore_index=-100)
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out["logits"] = logits
            for name, p in model.named_parameters():
                out["grad/" + name] = p.grad.clone()
        optimizer.step()
    out["losses"], out["eval_logits"] = torch.stack(losses), model(*inputs)
    write_safetensors(os.path.join(folder, case + ".safetensors"), out)
    print(case, "losses", float(losses[0]), "->", float(losses[-1]))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    source, target = integers("source", (BATCH, SOURCE), SYMBOLS), integers("target", (BATCH, TARGET), SYMBOLS)
    next_tokens = integers("next", (BATCH, TARGET), SYMBOLS)
    next_tokens[1, 4:] = -100
    inputs = (source, target, torch.tensor([12, 5, 1]))
    make(folder, "t5_relu", T5(False), inputs, next_tokens)
    make(folder, "t5_gated", T5(True), inputs, next_tokens)


if __name__ == "__main__":
    main()
