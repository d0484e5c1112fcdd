"""Networks for rows of numbers and categories in PyTorch, as models/recommendation.cpp has them."""
import math

import torch
from torch import nn
from torch.nn import functional as F


def perceptron(widths):
    return nn.Sequential(*[m for a, b in zip(widths, widths[1:]) for m in (nn.Linear(a, b), nn.ReLU())])


class Vectors(nn.Module):
    def __init__(self, symbols, channels, fill):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sum(symbols), channels))
        fill(self.weight)
        self.register_buffer("first", torch.tensor([sum(symbols[:k]) for k in range(len(symbols))]))

    def forward(self, categories):
        return F.embedding(categories + self.first, self.weight)


class Bags(nn.Module):
    """The sums of the vectors of columns of several categories, with sparse gradients."""

    def __init__(self, symbols, most_ids, channels, fill):
        super().__init__()
        self.bags = nn.EmbeddingBag(sum(symbols) + 1, channels, mode="sum", sparse=True, padding_idx=sum(symbols))
        fill(self.bags.weight)
        self.first = [sum(symbols[:k]) for k in range(len(symbols))]
        self.ends = [sum(most_ids[: k + 1]) for k in range(len(most_ids))]

    def forward(self, categories):
        columns = torch.tensor_split(categories, self.ends[:-1], 1)
        places = [torch.where(c < 0, self.bags.padding_idx, c + first) for c, first in zip(columns, self.first)]
        return torch.stack([self.bags(p) for p in places], 1)


class Dlrm(nn.Module):
    """With `most_ids`, the largest numbers of categories in each column, columns have several."""

    def __init__(self, features, symbols, channels=16, bottom=(64, 32), top=(64, 32), most_ids=None):
        super().__init__()
        bound = 1 / math.sqrt(max(symbols))
        uniform = lambda w: nn.init.uniform_(w, -bound, bound)
        self.vectors = Bags(symbols, most_ids, channels, uniform) if most_ids else Vectors(symbols, channels, uniform)
        self.bottom = perceptron([features, *bottom, channels])
        count = 1 + len(symbols)
        self.pairs = torch.tril_indices(count, count, -1)
        self.top = nn.Sequential(perceptron([channels + count * (count - 1) // 2, *top]), nn.Linear(top[-1], 1))

    def forward(self, numbers, categories):
        dense = self.bottom(numbers)
        all = torch.cat([dense[:, None], self.vectors(categories)], 1)
        return self.top(torch.cat([dense, (all @ all.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]], 1))[:, 0]


class DeepFm(nn.Module):
    def __init__(self, features, symbols, channels=10, deep=(64, 64)):
        super().__init__()
        normal = lambda w: nn.init.normal_(w, std=0.01)
        self.vectors = Vectors(symbols, 1 + channels, normal)
        self.numbers = nn.Parameter(torch.empty(features, 1 + channels))
        normal(self.numbers)
        self.deep = nn.Sequential(perceptron([(features + len(symbols)) * channels, *deep]), nn.Linear(deep[-1], 1))

    def forward(self, numbers, categories):
        all = torch.cat([numbers[:, :, None] * self.numbers, self.vectors(categories)], 1)
        v = all[:, :, 1:]
        pairs = (v.sum(1).square() - v.square().sum(1)).sum(1) / 2
        return all[:, :, 0].sum(1) + pairs + self.deep(v.flatten(1))[:, 0]


class NeuMf(nn.Module):
    def __init__(self, features, symbols, factors=8, layers=(32, 16, 8)):
        super().__init__()
        self.factors = factors
        self.vectors = Vectors(symbols, factors + layers[0] // 2, lambda w: nn.init.normal_(w, std=0.01))
        self.layers, self.head = perceptron([layers[0], *layers]), nn.Linear(factors + layers[-1], 1)

    def forward(self, numbers, categories):
        a, b = self.vectors(categories).unbind(-2)
        f = self.factors
        deep = self.layers(torch.cat([a[..., f:], b[..., f:]], -1))
        return self.head(torch.cat([a[..., :f] * b[..., :f], deep], -1))[..., 0]
