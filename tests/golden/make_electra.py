#!/usr/bin/env python3
"""Writes the golden file electra.safetensors for electra_golden_test.cpp: a small ELECTRA in PyTorch, in float64, in
evaluation form (no dropout), with the engine's random numbers.

usage: make_electra.py [FOLDER]        (default: the folder of this script; needs PyTorch 1.13 or later)

It holds logits, losses, grad/<name> and eval_logits, as make_golden.py describes them; logits are the generator's, the
discriminator's, and whether each token was replaced. Parameters, inputs and targets are not stored: both sides compute
them by hashed(). Tokens are drawn as models/electra.cpp says, from the words of Philox4x32-10."""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import decayed, initial, integers, write_safetensors

SYMBOLS, LENGTH, BATCH, EMBEDDING = 40, 12, 3, 12
GENERATOR = {"layers": 1, "heads": 2, "channels": 8, "hidden": 16}
DISCRIMINATOR = {"layers": 2, "heads": 3, "channels": 24, "hidden": 40}
WEIGHT = 2.0
MASK32 = (1 << 32) - 1


def philox(key, counter):
    """The four words of Philox4x32-10 (J. Salmon et al., SC'11)."""
    c, k = list(counter), [key & MASK32, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK32, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK32]
        k = [(k[0] + 0x9E3779B9) & MASK32, (k[1] + 0xBB67AE85) & MASK32]
    return c


def drawn(tokens, targets, logits, seed):
    """The tokens, with one that is drawn from the logits at each place that has a target."""
    seen = tokens.clone().flatten()
    for p, target in enumerate(targets.flatten().tolist()):
        if target < 0:
            continue
        words = [philox(seed, (0, 0, 0, i // 4))[i % 4] for i in range(p * SYMBOLS, (p + 1) * SYMBOLS)]
        uniform = (torch.tensor([word >> 9 for word in words], dtype=torch.float64) + 0.5) * 2.0**-23
        seen[p] = torch.argmax(logits.detach().reshape(-1, SYMBOLS)[p] - torch.log(-torch.log(uniform)))
    return seen.reshape(tokens.shape)


class Encoder(nn.Module):
    """Layers of PyTorch's own, whose parameters have the names of Hugging Face's transformers in parts()."""

    def __init__(self, layers, heads, channels, hidden):
        super().__init__()
        self.channels, self.project = channels, nn.Linear(EMBEDDING, channels)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(channels, heads, hidden, dropout=0.0, activation="gelu",
                                                               layer_norm_eps=1e-12, batch_first=True) for _ in range(layers))

    def parts(self, place):
        modules, c = [("embeddings_project", self.project, slice(None))], self.channels
        for i, layer in enumerate(self.layers):
            of_layer = f"encoder.layer.{i}."
            for k, part in enumerate(("query", "key", "value")):
                rows = slice(k * c, (k + 1) * c)
                yield place + of_layer + f"attention.self.{part}.weight", layer.self_attn.in_proj_weight, rows
                yield place + of_layer + f"attention.self.{part}.bias", layer.self_attn.in_proj_bias, rows
            for name, module in (("attention.output.dense", layer.self_attn.out_proj), ("output.LayerNorm", layer.norm2),
                                 ("attention.output.LayerNorm", layer.norm1), ("intermediate.dense", layer.linear1),
                                 ("output.dense", layer.linear2)):
                modules.append((of_layer + name, module, slice(None)))
        for name, module, rows in modules:
            yield place + name + ".weight", module.weight, rows
            yield place + name + ".bias", module.bias, rows

    def forward(self, x):
        x = self.project(x)
        for layer in self.layers:
            x = layer(x)
        return x


class Electra(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.positions, self.types = (nn.Embedding(n, EMBEDDING) for n in (SYMBOLS, LENGTH, 2))
        self.norm, self.generator_norm = nn.LayerNorm(EMBEDDING, eps=1e-12), nn.LayerNorm(EMBEDDING, eps=1e-12)
        self.generator, self.discriminator = Encoder(**GENERATOR), Encoder(**DISCRIMINATOR)
        self.generator_dense = nn.Linear(GENERATOR["channels"], EMBEDDING)
        self.bias = nn.Parameter(torch.empty(SYMBOLS))
        c = DISCRIMINATOR["channels"]
        self.dense, self.prediction = nn.Linear(c, c), nn.Linear(c, 1)

    def parts(self):
        embeddings = "discriminator.electra.embeddings."
        for name, module in (("word_embeddings", self.words), ("position_embeddings", self.positions),
                             ("token_type_embeddings", self.types)):
            yield embeddings + name + ".weight", module.weight, slice(None)
        yield "generator.generator_lm_head.bias", self.bias, slice(None)
        for name, module in ((embeddings + "LayerNorm", self.norm),
                             ("generator.generator_predictions.LayerNorm", self.generator_norm),
                             ("generator.generator_predictions.dense", self.generator_dense),
                             ("discriminator.discriminator_predictions.dense", self.dense),
                             ("discriminator.discriminator_predictions.dense_prediction", self.prediction)):
            yield name + ".weight", module.weight, slice(None)
            yield name + ".bias", module.bias, slice(None)
        yield from self.generator.parts("generator.electra.")
        yield from self.discriminator.parts("discriminator.electra.")

    def embed(self, tokens):
        return self.norm(self.words(tokens) + self.types.weight[0] + self.positions.weight)

    def forward(self, tokens, targets, seed):
        x = self.generator_norm(F.gelu(self.generator_dense(self.generator(self.embed(tokens)))))
        logits = F.linear(x, self.words.weight, self.bias)
        seen = drawn(tokens, targets, logits, seed)
        found = self.prediction(F.gelu(self.dense(self.discriminator(self.embed(seen)))))
        replaced = ((targets >= 0) & (seen != targets)).double()[..., None]
        return torch.cat([logits, found, replaced], 2)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    tokens, targets = integers("input", (BATCH, LENGTH), SYMBOLS), integers("target", (BATCH, LENGTH), SYMBOLS)
    targets = torch.where(integers("chosen", (BATCH, LENGTH), 3) == 0, targets, -100)
    model = Electra().double()
    with torch.no_grad():
        for name, p, part in model.parts():
            p[part] = torch.from_numpy(initial(name, tuple(p[part].shape)))
    optimizer = torch.optim.AdamW(decayed(model, 0.1), 3e-3, betas=(0.9, 0.95))
    out, losses = {"logits": model(tokens, targets, 0)}, []
    for step in range(10):
        optimizer.zero_grad()
        x = model(tokens, targets, 1)
        restored = F.cross_entropy(x[..., :SYMBOLS].flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
        found = F.binary_cross_entropy_with_logits(x[..., -2], x[..., -1].detach(), reduction="sum")
        loss = (restored + WEIGHT * found) / (targets >= 0).sum()
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out.update(("grad/" + name, p.grad[part].clone()) for name, p, part in model.parts())
        optimizer.step()
    out["losses"], out["eval_logits"] = torch.stack(losses), model(tokens, targets, 0)
    write_safetensors(os.path.join(folder, "electra.safetensors"), out)
    print("losses", float(losses[0]), "->", float(losses[-1]))


if __name__ == "__main__":
    main()
