#!/usr/bin/env python3
"""Writes the golden files rows_<case>.safetensors for rows_golden_test.cpp: networks and tasks for rows of numbers and
categories in PyTorch, in float64.

usage: make_rows.py [FOLDER]        (default: the folder of this script; needs PyTorch 1.13 or later)

Each holds outputs, losses, grad/<name> and eval_outputs, as make_golden.py describes them for logits. The loss is the
mean over all targets. Parameters, inputs and targets are not stored: both sides compute them by hashed()."""
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import fill_initial, hashed, integers, symmetric, write_safetensors

SYMBOLS = (7, 5, 11)
ROWS, NUMBERS = 6, 4


class Vectors(nn.Module):
    """One table for the categories of all columns."""

    def __init__(self, symbols, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sum(symbols), channels))
        self.first = torch.tensor(np.cumsum((0,) + symbols[:-1]))

    def forward(self, categories):
        return F.embedding(categories + self.first, self.weight)


def tower(widths):
    return nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))


def through(layers, x):
    for layer in layers:
        x = F.relu(layer(x))
    return x


class Dlrm(nn.Module):
    def __init__(self, channels, bottom, top):
        super().__init__()
        self.embedding = Vectors(SYMBOLS, channels)
        self.bottom = tower([NUMBERS, *bottom, channels])
        vectors = 1 + len(SYMBOLS)
        self.top = tower([channels + vectors * (vectors - 1) // 2, *top])
        self.head = nn.Linear(top[-1], 1)

    def forward(self, numbers, categories):
        dense = through(self.bottom, numbers)
        all = torch.cat([dense[:, None], self.embedding(categories)], 1)
        rows, columns = torch.tril_indices(all.shape[1], all.shape[1], -1)
        products = torch.einsum("nic,njc->nij", all, all)[:, rows, columns]
        return self.head(through(self.top, torch.cat([dense, products], 1)))


class DeepFm(nn.Module):
    def __init__(self, channels, deep):
        super().__init__()
        self.embedding = Vectors(SYMBOLS, 1 + channels)
        self.numbers = nn.Module()
        self.numbers.weight = nn.Parameter(torch.empty(NUMBERS, 1 + channels))
        self.deep = tower([(NUMBERS + len(SYMBOLS)) * channels, *deep])
        self.head = nn.Linear(deep[-1], 1)

    def forward(self, numbers, categories):
        all = torch.cat([numbers[:, :, None] * self.numbers.weight, self.embedding(categories)], 1)
        first, vectors = all[:, :, 0].sum(1, keepdim=True), all[:, :, 1:]
        pairs = sum((vectors[:, i] * vectors[:, j]).sum(1, keepdim=True)
                    for i in range(vectors.shape[1]) for j in range(i))
        return first + pairs + self.head(through(self.deep, vectors.flatten(1)))


class NeuMf(nn.Module):
    def __init__(self, factors, layers):
        super().__init__()
        self.factors = factors
        half = (layers[0] + 1) // 2
        self.embedding = Vectors(SYMBOLS[:2], factors + half)
        self.layers = tower([2 * half, *layers])
        self.head = nn.Linear(factors + layers[-1], 1)

    def forward(self, pairs):
        users, items = self.embedding(pairs).unbind(1)
        f = self.factors
        deep = through(self.layers, torch.cat([users[:, f:], items[:, f:]], 1))
        return self.head(torch.cat([users[:, :f] * items[:, :f], deep], 1))


def make(folder, case, model, inputs, y, loss_of):
    fill_initial(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-3)
    out, losses = {}, []
    for step in range(10):
        optimizer.zero_grad()
        outputs = model(*inputs)
        loss = loss_of(outputs[:, 0], y)
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out["outputs"] = outputs
            for name, p in model.named_parameters():
                out["grad/" + name] = p.grad.clone()
        optimizer.step()
    out["losses"] = torch.stack(losses)
    out["eval_outputs"] = model(*inputs)
    write_safetensors(os.path.join(folder, f"rows_{case}.safetensors"), out)
    print(case, "losses", float(losses[0]), "->", float(losses[-1]))


def focal(x, y, gamma, positive_weight):
    p = torch.where(y > 0.5, torch.sigmoid(x), 1 - torch.sigmoid(x))  # of the label
    return (-torch.log(p) * (1 - p) ** gamma * torch.where(y > 0.5, positive_weight, 1.0)).mean()


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    numbers = torch.from_numpy(symmetric("input", ROWS * NUMBERS).reshape(ROWS, NUMBERS))
    categories = torch.stack([integers(f"column{k}", (ROWS,), n) for k, n in enumerate(SYMBOLS)], 1)
    labels = integers("target", (ROWS,), 2).to(torch.float64)
    soft = torch.from_numpy(hashed("target", ROWS).astype(np.float64) / 2**24)
    make(folder, "dlrm_focal", Dlrm(3, [5], [6, 4]), (numbers, categories), labels, lambda x, y: focal(x, y, 1.5, 2.0))
    make(folder, "deepfm_huber", DeepFm(3, [6, 4]), (numbers, categories), soft,
         lambda x, y: F.huber_loss(x, y, delta=0.25))
    make(folder, "neumf_binary", NeuMf(3, [7, 4]), (categories[:, :2],), soft,
         lambda x, y: F.binary_cross_entropy_with_logits(x, y, pos_weight=torch.tensor(3.0)))
    make(folder, "neumf_mae", NeuMf(3, [7, 4]), (categories[:, :2],), soft, F.l1_loss)


if __name__ == "__main__":
    main()
