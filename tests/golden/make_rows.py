#!/usr/bin/env python3
"""Writes the golden files rows_<case>.safetensors for rows_golden_test.cpp: networks and tasks for rows of numbers and
categories in PyTorch, in float64.

usage: make_rows.py [FOLDER]        (default: the folder of this script; needs PyTorch 1.13 or later)

Each holds outputs, losses, grad/<name> and eval_outputs, as make_golden.py describes them for logits. The loss is the
mean over all targets. Those of make_sparse() hold losses, the table after ten steps, and eval_outputs. Parameters,
inputs and targets are not stored: both sides compute them by hashed()."""
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import fill_initial, hashed, integers, symmetric, write_safetensors

SYMBOLS = (7, 5, 11)
MOST = (1, 4, 2)  # categories of each column in a row, in cases with bags
ROWS, NUMBERS = 6, 4


class Vectors(nn.Module):
    """One table for the categories of all columns."""

    sparse = False

    def __init__(self, symbols, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sum(symbols), channels))
        self.first = torch.tensor(np.cumsum((0,) + symbols[:-1]))

    def forward(self, categories):
        return F.embedding(categories + self.first, self.weight, sparse=self.sparse)


class BagVectors(nn.EmbeddingBag):
    """The same for columns of several categories; places (N, sum of MOST) have -1 for none."""

    def __init__(self, symbols, channels, mode):
        super().__init__(sum(symbols), channels, mode=mode)
        self.first = np.cumsum((0,) + symbols[:-1])

    def forward(self, places):
        ids, offsets = [], []
        for row in places.tolist():
            for first, begin, most in zip(self.first, np.cumsum((0,) + MOST[:-1]), MOST):
                offsets.append(len(ids))
                ids += [int(first) + id for id in row[begin:begin + most] if id >= 0]
        bags = super().forward(torch.tensor(ids), torch.tensor(offsets))
        return bags.reshape(len(places), len(MOST), -1)


def bags():
    """Places of which half of those in columns of several have no id."""
    columns = []
    for k, (n, most) in enumerate(zip(SYMBOLS, MOST)):
        if most == 1:
            columns.append(integers(f"column{k}", (ROWS,), n)[:, None])
        else:
            v = integers(f"bag{k}", (ROWS, most), 2 * n)
            columns.append(torch.where(v < n, v, -1))
    return torch.cat(columns, 1)


def tower(widths):
    return nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))


def through(layers, x):
    for layer in layers:
        x = F.relu(layer(x))
    return x


class Dlrm(nn.Module):
    def __init__(self, channels, bottom, top, mode=None):
        super().__init__()
        self.embedding = BagVectors(SYMBOLS, channels, mode) if mode else Vectors(SYMBOLS, channels)
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
    def __init__(self, channels, deep, mode=None):
        super().__init__()
        self.embedding = BagVectors(SYMBOLS, 1 + channels, mode) if mode else Vectors(SYMBOLS, 1 + channels)
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


class RowwiseAdagrad(torch.optim.Optimizer):
    """Of FBGEMM: one sum for each row of a table; rows that the gradient lacks stay."""

    def __init__(self, parameters, lr, eps, weight_decay):
        super().__init__(parameters, dict(lr=lr, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                sums = self.state[p].setdefault("sum", torch.zeros(p.shape[0]))
                gradient = p.grad.coalesce()
                rows = gradient.indices()[0]
                g = gradient.values() + group["weight_decay"] * p[rows]
                sums[rows] += (g * g).mean(1)
                p[rows] -= group["lr"] / (sums[rows].sqrt() + group["eps"])[:, None] * g


def make_sparse(folder, case, optimizers_of, inputs, y, loss_of, mode=None):
    """Trains DLRM with a sparse gradient of the table. Step s has two samples of all, from 2 (s % 3) on."""
    model = Dlrm(3, [5], [6, 4], mode)
    model.embedding.sparse = True
    fill_initial(model)
    table = model.embedding.weight
    optimizers = optimizers_of([table], [p for p in model.parameters() if p is not table])
    out, losses = {}, []
    for step in range(10):
        samples = slice(2 * (step % 3), 2 * (step % 3) + 2)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = loss_of(model(*(x[samples] for x in inputs))[:, 0], y[samples])
        loss.backward()
        losses.append(loss.detach())
        for optimizer in optimizers:
            optimizer.step()
    out["losses"] = torch.stack(losses)
    out["table"] = table
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
    make(folder, "dlrm_bags", Dlrm(3, [5], [6, 4], "sum"), (numbers, bags()), soft, F.binary_cross_entropy_with_logits)
    make(folder, "deepfm_bags", DeepFm(3, [6, 4], "mean"), (numbers, bags()), soft,
         F.binary_cross_entropy_with_logits)
    for case, mode in (("sparse_bags", "sum"), ("sparse_mean_bags", "mean")):
        make_sparse(folder, case, lambda table, others: (RowwiseAdagrad(table, 0.05, 1e-8, 0.0), torch.optim.SGD(
            others, 0.05, momentum=0.9)), (numbers, bags()), soft, F.binary_cross_entropy_with_logits, mode)
    for case, of_table in (("sparse_sgd", lambda p: torch.optim.SGD(p, 0.1)),
                           ("sparse_adam", lambda p: torch.optim.SparseAdam(p, 0.02, eps=1e-12)),
                           ("rowwise_adagrad", lambda p: RowwiseAdagrad(p, 0.05, 1e-8, 1e-3))):
        decay = 1e-3 if case == "rowwise_adagrad" else 0.0
        make_sparse(folder, case, lambda table, others: (of_table(table), torch.optim.SGD(
            others, 0.05, momentum=0.0 if case == "sparse_sgd" else 0.9, weight_decay=decay)),
            (numbers, categories), soft, F.binary_cross_entropy_with_logits)
    make(folder, "neumf_binary", NeuMf(3, [7, 4]), (categories[:, :2],), soft,
         lambda x, y: F.binary_cross_entropy_with_logits(x, y, pos_weight=torch.tensor(3.0)))
    make(folder, "neumf_mae", NeuMf(3, [7, 4]), (categories[:, :2],), soft, F.l1_loss)


if __name__ == "__main__":
    main()
