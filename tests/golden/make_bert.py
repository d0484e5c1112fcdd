#!/usr/bin/env python3
"""Writes the golden files bert_masked.safetensors and bert_pooled.safetensors for bert_golden_test.cpp: small BERTs in
PyTorch, in float64, in evaluation form (no dropout).

usage: make_bert.py [FOLDER]        (default: the folder of this script; needs PyTorch 1.13 or later)

Each holds logits, losses, grad/<name> and eval_logits, as make_golden.py describes them. Parameters, inputs and targets
are not stored: both sides compute them by hashed(). Encoder layers are PyTorch's own nn.TransformerEncoderLayer, whose
parameters are filled under the names that BERT has in Hugging Face's transformers."""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import decayed, initial, integers, write_safetensors

LAYERS, HEADS, CHANNELS, HIDDEN, SYMBOLS, LENGTH, BATCH = 2, 3, 24, 40, 40, 12, 3


def named(self_attention, name):
    """The parts of a layer of PyTorch under BERT's names: (name, view of a parameter or of its gradient)."""
    layer, c = self_attention, CHANNELS
    place = f"bert.encoder.layer.{name}."
    for i, part in enumerate(("query", "key", "value")):
        yield place + f"attention.self.{part}.weight", layer.self_attn.in_proj_weight, slice(i * c, (i + 1) * c)
        yield place + f"attention.self.{part}.bias", layer.self_attn.in_proj_bias, slice(i * c, (i + 1) * c)
    for theirs, module in (("attention.output.dense", layer.self_attn.out_proj), ("attention.output.LayerNorm", layer.norm1),
                           ("intermediate.dense", layer.linear1), ("output.dense", layer.linear2), ("output.LayerNorm", layer.norm2)):
        yield place + theirs + ".weight", module.weight, slice(None)
        yield place + theirs + ".bias", module.bias, slice(None)


class Bert(nn.Module):
    def __init__(self, pooled):
        super().__init__()
        c = CHANNELS
        symbols = SYMBOLS + 1 if pooled else SYMBOLS
        self.words, self.positions, self.types = nn.Embedding(symbols, c), nn.Embedding(LENGTH, c), nn.Embedding(2, c)
        self.norm = nn.LayerNorm(c, eps=1e-12)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(c, HEADS, HIDDEN, dropout=0.0, activation="gelu",
                                                               layer_norm_eps=1e-12, batch_first=True) for _ in range(LAYERS))
        self.dense = nn.Linear(c, c)
        self.pooled = pooled
        if pooled:
            self.classifier = nn.Linear(c, 5)
        else:
            self.head_norm, self.bias = nn.LayerNorm(c, eps=1e-12), nn.Parameter(torch.empty(symbols))

    def parts(self):
        embeddings = "bert.embeddings."
        for name, module in (("word_embeddings", self.words), ("position_embeddings", self.positions),
                             ("token_type_embeddings", self.types)):
            yield embeddings + name + ".weight", module.weight, slice(None)
        modules = [(embeddings + "LayerNorm", self.norm)]
        if self.pooled:
            modules += [("bert.pooler.dense", self.dense), ("classifier", self.classifier)]
        else:
            modules += [("cls.predictions.transform.dense", self.dense), ("cls.predictions.transform.LayerNorm", self.head_norm)]
            yield "cls.predictions.bias", self.bias, slice(None)
        for name, module in modules:
            yield name + ".weight", module.weight, slice(None)
            yield name + ".bias", module.bias, slice(None)
        for i, layer in enumerate(self.layers):
            yield from named(layer, i)

    def forward(self, tokens, lengths=None):
        x = self.norm(self.words(tokens) + self.types.weight[0] + self.positions.weight[: tokens.shape[1]])
        absent = None if lengths is None else torch.arange(tokens.shape[1])[None] >= lengths[:, None]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=absent)
        if self.pooled:
            return self.classifier(torch.tanh(self.dense(x[:, 0])))
        return F.linear(self.head_norm(F.gelu(self.dense(x))), self.words.weight, self.bias)


def make(folder, case, model, inputs, y):
    with torch.no_grad():
        for name, p, part in model.parts():
            p[part] = torch.from_numpy(initial(name, tuple(p[part].shape)))
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
            for name, p, part in model.parts():
                out["grad/" + name] = p.grad[part].clone()
        optimizer.step()
    out["losses"], out["eval_logits"] = torch.stack(losses), model(*inputs)
    write_safetensors(os.path.join(folder, case + ".safetensors"), out)
    print(case, "losses", float(losses[0]), "->", float(losses[-1]))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    tokens, targets = integers("input", (BATCH, LENGTH), SYMBOLS), integers("target", (BATCH, LENGTH), SYMBOLS)
    chosen = integers("chosen", (BATCH, LENGTH), 3) == 0
    make(folder, "bert_masked", Bert(False), (tokens,), torch.where(chosen, targets, -100))
    lengths = torch.tensor([12, 5, 1])
    first = torch.cat([torch.full((BATCH, 1), SYMBOLS), tokens[:, 1:]], 1)
    make(folder, "bert_pooled", Bert(True), (first, lengths), integers("target", (BATCH,), 5))


if __name__ == "__main__":
    main()
