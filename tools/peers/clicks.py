#!/usr/bin/env python3
"""Trains recommendation networks on the rows of data kind "synthetic_table" in PyTorch: the counterpart of
models/configs/{dlrm,deepfm}_clicks.toml, neumf_ratings.toml and dlrm_baskets.toml, for models/RESULTS.md.

usage: clicks.py dlrm|deepfm|neumf|baskets [--seeds 3]     (needs PyTorch)

Rows, batches per epoch, schedule, optimiser and sizes are those of the configuration; initial values and the order of
rows are PyTorch's. Prints loss, accuracy and area under the curve on the validation rows for each seed."""
import argparse
import math
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from philox import below, key_of, philox
from torch_networks.rows import DeepFm, Dlrm, NeuMf

SIZE, BATCH, LR = 500_000, 256, 0.003


def sign(bits):
    """Two bits as -1, 0, 0 or 1."""
    two = (bits >> np.uint64(8)) & np.uint64(3)
    return (two == 3).astype(np.int64) - (two == 0).astype(np.int64)


def rows(part, size, features, symbols, most_ids=None):
    """Numbers, categories and targets of data/synthetic_table.cpp."""
    most_ids = most_ids or [1] * len(symbols)
    key, index = key_of("data.synthetic_table"), np.arange(size, dtype=np.uint64)
    words = lambda block: philox(key, 1 + part, index, 0, block)
    t, block = np.zeros(size, np.int64), 1
    numbers, categories = np.zeros((size, features), np.float32), np.zeros((size, sum(most_ids)), np.int64)
    for f in range(features):
        x = below(words(block)[0], 5) - 2
        numbers[:, f] = x
        t += sign(philox(key, 0, 0, f, 0)[0]) * x
        block += 1
    sums, squares = np.zeros((size, 4), np.int64), np.zeros(size, np.int64)
    place = 0
    for k, (n, most) in enumerate(zip(symbols, most_ids)):
        ids, vector = np.ones(size, np.int64), np.zeros((size, 4), np.int64)
        if most > 1:
            ids = below(words(block)[0], most + 1)
            block += 1
        for i in range(most):
            id = below(words(block)[0], n)
            block += 1
            for r, word in enumerate(philox(key, 0, 1 + k, id.astype(np.uint64), 1)):
                vector[:, r] += np.where(i < ids, sign(word), 0)
            categories[:, place] = np.where(i < ids, id, -1)
            place += 1
        sums += vector
        squares += (vector * vector).sum(1)
    t = np.clip(t + ((sums * sums).sum(1) - squares) // 2, -6, 6)
    ones, zeros = np.uint64(1) << np.maximum(t, 0).astype(np.uint64), np.uint64(1) << np.maximum(-t, 0).astype(np.uint64)
    target = words(0)[0] * (ones + zeros) < ones << np.uint64(32)
    best = np.log1p(np.exp2(np.where(target, -t, t))).mean()
    return torch.from_numpy(numbers), torch.from_numpy(categories), torch.from_numpy(target.astype(np.float32)), best


BASKETS = [1, 3, 4, 6]  # most_ids
NETWORKS = {"dlrm": (Dlrm, 8, [100] * 4, 2000), "deepfm": (DeepFm, 8, [100] * 4, 2000), "neumf": (NeuMf, 0, [300, 200], 3000),
            "baskets": (lambda f, s: Dlrm(f, s, most_ids=BASKETS), 8, [100] * 4, 2000)}


class Optimizers:
    """Adam, and SparseAdam for a table with sparse gradients."""

    def __init__(self, model):
        sparse = [m.weight for m in model.modules() if isinstance(m, nn.EmbeddingBag)]
        dense = [p for p in model.parameters() if all(p is not table for table in sparse)]
        self.all = [torch.optim.Adam(dense, LR)] + ([torch.optim.SparseAdam(sparse, LR)] if sparse else [])

    def zero_grad(self):
        for optimizer in self.all:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.all:
            optimizer.step()


def area(logits, targets):
    order = np.argsort(logits, kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1, len(order) + 1)
    positives = targets.sum()
    return (ranks[targets > 0.5].sum() - positives * (positives + 1) / 2) / (positives * (len(targets) - positives))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    make, features, symbols, steps = NETWORKS[options.network]
    most_ids = BASKETS if options.network == "baskets" else None
    numbers, categories, targets, _ = rows(0, SIZE, features, symbols, most_ids)
    v_numbers, v_categories, v_targets, best = rows(1, SIZE // 10, features, symbols, most_ids)
    print(f"{options.network}: the rule's loss on {SIZE // 10} rows is {best:.4f}")
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        model = make(features, symbols)
        optimizer = Optimizers(model)
        schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda s: (1 + math.cos(math.pi * s / steps)) / 2)
                     for o in optimizer.all]
        began, order = time.time(), torch.empty(0, dtype=torch.int64)
        for _ in range(steps):
            if len(order) == 0:
                order = torch.randperm(SIZE)
            batch, order = order[:BATCH], order[BATCH:]
            loss = F.binary_cross_entropy_with_logits(model(numbers[batch], categories[batch]), targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for schedule in schedules:
                schedule.step()
        seconds = time.time() - began
        with torch.no_grad():
            logits = model(v_numbers, v_categories)
            loss = F.binary_cross_entropy_with_logits(logits, v_targets)
        accuracy = ((logits > 0) == (v_targets > 0.5)).double().mean()
        print(f"seed {seed} loss {loss:.4f} accuracy {accuracy:.4f} auc {area(logits.numpy(), v_targets.numpy()):.4f} "
              f"({seconds:.1f} s)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
