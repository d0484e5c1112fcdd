#!/usr/bin/env python3
"""Trains a GPT of bytes in PyTorch: the counterpart of `train run CONFIG` with kind = "gpt", for models/RESULTS.md.

usage: texts.py CONFIG TEXT [--seeds 0 1 2] [--threads 2] [--set run.steps=100 ..]

Batches, windows (data/text.h), schedule, optimizer, sizes and dropout are those of the configuration; initial values and
random numbers are PyTorch's. It refuses settings that it does not have. It trains on the first nine tenths of the text,
and prints loss and accuracy on the rest for each seed, and the time of training."""
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

from seeds import print_scores, read_options

# The settings of which there is one form here: table, key, value.
EXPECTED = (("model", "kind", "gpt"), ("model", "bias", True), ("model", "tied_head", True), ("data", "tokens", "byte"),
            ("data", "validation_fraction", 0), ("optimizer", "kind", "adamw"), ("optimizer", "exempt", ["vectors"]),
            ("schedule", "kind", "cosine"))


class Block(nn.Module):
    def __init__(self, channels, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.c_attn, self.attn_proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.c_fc, self.mlp_proj = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x):
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.attn_proj(seen))
        return x + self.dropout(self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")))


class Gpt(nn.Module):
    def __init__(self, layers, heads, channels, context, dropout):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, channels), nn.Embedding(context, channels)
        self.blocks = nn.Sequential(*(Block(channels, heads, dropout) for _ in range(layers)))
        self.ln_f, self.dropout = nn.LayerNorm(channels), nn.Dropout(dropout)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2 * layers) if "_proj" in name else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens):
        x = self.dropout(self.wte(tokens) + self.wpe.weight[: tokens.shape[1]])
        return F.linear(self.ln_f(self.blocks(x)), self.wte.weight)


def windows(tokens, context, count, offset=0):
    """Returns inputs and targets (count, context): window i begins with token offset + i * context."""
    inputs, targets = tokens[offset:], tokens[offset + 1:]
    return inputs[:count * context].view(count, context), targets[:count * context].view(count, context)


def score(network, inputs, targets):
    network.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for x, y in zip(inputs.split(16), targets.split(16)):
            logits = network(x).flatten(0, 1)
            loss += F.cross_entropy(logits, y.flatten(), reduction="sum").item()
            right += (logits.argmax(1) == y.flatten()).sum().item()
    network.train()
    return loss / targets.numel(), right / targets.numel()


def batches(tokens, context, size):
    """Yields batches without end. Windows of each epoch begin at an offset of its own; its last batch may be smaller."""
    count = max(1, (len(tokens) - context) // context)
    while True:
        offset = int(torch.randint(min(context, len(tokens) - count * context), ()))
        inputs, targets = windows(tokens, context, count, offset)
        for indices in torch.randperm(len(inputs)).split(size):
            yield inputs[indices], targets[indices]


def train(config, tokens, seed):
    torch.manual_seed(seed)
    run, model, o, context = config["run"], config["model"], config["optimizer"], config["data"]["context"]
    network = Gpt(model["layers"], model["heads"], model["channels"], context, model.get("dropout", 0.0))
    matrices = [p for p in network.parameters() if p.dim() > 1]
    vectors = [p for p in network.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": o["weight_decay"]},
                                   {"params": vectors, "weight_decay": 0.0}], o["lr"], betas=(0.9, o["beta2"]))
    steps = run["steps"]
    warmup, least = config["schedule"]["warmup_steps"], config["schedule"]["min_ratio"]
    cosine = lambda s: (1 + math.cos(math.pi * (s - warmup) / max(1, steps - warmup))) / 2
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: (s + 1) / warmup if s < warmup else least + (1 - least) * cosine(s))
    for _, (x, y) in zip(range(steps), batches(tokens, context, run["batch_size"])):
        loss = F.cross_entropy(network(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), o["clip_norm"])
        optimizer.step()
        schedule.step()
    return network


def main():
    options, config = read_options("text")
    for table, key, value in EXPECTED:
        given = config.get(table, {}).get(key, value)
        if given != value:
            sys.exit(f"texts.py: {options.config}: {table}.{key} must be {value!r}, not {given!r}")
    if "experts" in config["model"]:
        sys.exit(f"texts.py: {options.config}: model.experts is not supported")
    with open(options.text, "rb") as file:
        tokens = torch.tensor(list(file.read()))
    border = len(tokens) * 9 // 10
    context = config["data"]["context"]
    of_validation = windows(tokens[border:], context, (len(tokens) - border - 1) // context)
    print_scores(options.seeds, lambda seed: train(config, tokens[:border], seed),
                 lambda network: score(network, *of_validation))


if __name__ == "__main__":
    main()
