#!/usr/bin/env python3
"""Writes the golden files gpt_experts, gpt_switch and llama_experts .safetensors for experts_golden_test.cpp: small
transformers with mixtures of experts in PyTorch, in float64, whose experts have too little capacity in training.

usage: make_experts.py [FOLDER]        (default: the folder of this script; needs PyTorch 1.13 or later)

Each holds, as make_golden.py describes them, logits and eval_logits in evaluation form (nothing is dropped), losses
(cross entropy alone) and grad/<name> in training form, of cross entropy and the router's losses. Experts work token by
token here, without rows or an order of sums."""
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import Gpt, Llama, attend, decayed, fill_initial, integers, write_safetensors

CHANNELS, HIDDEN, HEADS, SYMBOLS, BATCH, LENGTH = 24, 32, 3, 40, 3, 12


class Stacked(nn.Module):
    def __init__(self, experts, cin, cout):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, cin, cout))


class Mixture(nn.Module):
    def __init__(self, experts, chosen, capacity_factor, balance, z):
        super().__init__()
        self.experts = self.layers(experts)
        self.gate = nn.Linear(CHANNELS, experts, bias=False)
        self.count, self.chosen, self.factor, self.balance, self.z = experts, chosen, capacity_factor, balance, z

    def layers(self, experts):
        return nn.ModuleDict({"c_fc": Stacked(experts, CHANNELS, 4 * CHANNELS),
                              "c_proj": Stacked(experts, 4 * CHANNELS, CHANNELS)})

    def expert(self, i, x):
        return F.gelu(x @ self.experts["c_fc"].weight[i], approximate="tanh") @ self.experts["c_proj"].weight[i]

    def forward(self, x):
        tokens = x.flatten(0, 1)
        logits = self.gate(tokens)
        shares = logits.softmax(-1)
        chosen = torch.sort(logits, dim=-1, descending=True, stable=True).indices[:, : self.chosen]
        weights = shares.gather(1, chosen)
        if self.chosen > 1:
            weights = weights / weights.sum(-1, keepdim=True)
        n = len(tokens)
        capacity = math.ceil(self.factor * self.chosen * n / self.count) if self.training else n
        served, parts = [0] * self.count, [[] for _ in range(n)]
        for j in range(self.chosen):
            for t in range(n):
                e = int(chosen[t, j])
                served[e] += 1
                if served[e] <= capacity:
                    parts[t].append(weights[t, j] * self.expert(e, tokens[t]))
        self.dropped = n * self.chosen - sum(map(len, parts))
        y = torch.stack([sum(p) if p else torch.zeros(CHANNELS) for p in parts])
        fractions = torch.bincount(chosen.flatten(), minlength=self.count) / (n * self.chosen)
        self.loss = (self.balance * self.count * (fractions * shares.mean(0)).sum() +
                     self.z * logits.logsumexp(-1).square().mean())
        return y.view_as(x)


class GatedMixture(Mixture):
    """The experts of Mixtral."""
    def layers(self, experts):
        return nn.ModuleDict({"w1": Stacked(experts, CHANNELS, HIDDEN), "w2": Stacked(experts, HIDDEN, CHANNELS),
                              "w3": Stacked(experts, CHANNELS, HIDDEN)})

    def expert(self, i, x):
        w1, w2, w3 = (self.experts[name].weight[i] for name in ("w1", "w2", "w3"))
        return (F.silu(x @ w1) * (x @ w3)) @ w2


class ExpertBlock(nn.Module):
    def __init__(self, *mixture):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(CHANNELS, 3 * CHANNELS),
                                   "c_proj": nn.Linear(CHANNELS, CHANNELS)})
        self.mlp = Mixture(*mixture)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (HEADS, -1)) for t in self.attn["c_attn"](self.ln_1(x)).chunk(3, 2))
        x = x + self.attn["c_proj"](attend(q, k, v))
        return x + self.mlp(self.ln_2(x))


def gpt(places, *mixture):
    model = Gpt(2, HEADS, CHANNELS, SYMBOLS, 16)
    for i in places:
        model.h[i] = ExpertBlock(*mixture)
    return model, [model.h[i].mlp for i in places]


def llama(*mixture):
    model = Llama(2, 6, 2, CHANNELS, HIDDEN, SYMBOLS)
    mixtures = []
    for block in model.model["layers"]:
        del block.mlp
        block.block_sparse_moe = GatedMixture(*mixture)
        block.perceptron = block.block_sparse_moe.forward
        mixtures.append(block.block_sparse_moe)
    return model, mixtures


def make(folder, case, model, mixtures):
    fill_initial(model)
    x, y = integers("input", (BATCH, LENGTH), SYMBOLS), integers("target", (BATCH, LENGTH), SYMBOLS)
    optimizer = torch.optim.AdamW(decayed(model, 0.1), 3e-3, betas=(0.9, 0.95))
    out, losses, dropped = {"logits": model.eval()(x)}, [], []
    model.train()
    for step in range(10):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        (loss + sum(m.loss for m in mixtures)).backward()
        losses.append(loss.detach())
        dropped.append([m.dropped for m in mixtures])
        if step == 0:
            for name, p in model.named_parameters():
                out["grad/" + name] = p.grad.clone()
        optimizer.step()
    out["losses"], out["eval_logits"] = torch.stack(losses), model.eval()(x)
    write_safetensors(os.path.join(folder, case + ".safetensors"), out)
    print(case, "losses", float(losses[0]), "->", float(losses[-1]), "dropped", dropped)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    make(folder, "gpt_experts", *gpt((0, 1), 4, 2, 1.0, 0.02, 0.001))
    make(folder, "gpt_switch", *gpt((1,), 5, 1, 0.8, 0.05, 0.0))
    make(folder, "llama_experts", *llama(5, 2, 1.0, 0.02, 0.001))


if __name__ == "__main__":
    main()
