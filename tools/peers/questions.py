#!/usr/bin/env python3
"""A text classification made of a plain text: is a sentence a question? And a BERT for it in PyTorch, the counterpart of
models/configs/bert_questions.toml, for models/RESULTS.md.

usage: questions.py make TEXT FOLDER        writes FOLDER/train.csv and FOLDER/val.csv: sentences without their last mark
       questions.py train FOLDER [--seeds 3]   trains in PyTorch, and prints loss and accuracy on val.csv

The last tenth of the sentences is for validation. As there are fewer questions, each split has as many others, the
first ones."""
import argparse
import csv
import math
import os
import re
import sys
import time

CONTEXT, BATCH, STEPS, LR = 64, 32, 1500, 0.001


def make(text, folder):
    with open(text, encoding="utf-8") as file:
        sentences = re.findall(r"[^.!?;:]+[.!?]", " ".join(file.read().split()))
    rows = [(s[:-1].strip(), "question" if s[-1] == "?" else "other") for s in sentences if len(s) > 10]
    os.makedirs(folder, exist_ok=True)
    border = len(rows) * 9 // 10
    for name, part in (("train", rows[:border]), ("val", rows[border:])):
        questions = sum(label == "question" for _, label in part)
        others, kept = 0, []
        for row in part:
            others += row[1] == "other"
            if row[1] == "question" or others <= questions:
                kept.append(row)
        with open(os.path.join(folder, name + ".csv"), "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "label"), *kept])
        print(f"{name}: {len(kept)} sentences")


def train(folder, seeds):
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    def rows(name):
        tokens, lengths, labels = [], [], []
        with open(os.path.join(folder, name + ".csv"), newline="", encoding="utf-8") as file:
            for text, label in list(csv.reader(file))[1:]:
                bytes = [256, *text.encode()[: CONTEXT - 1]]
                tokens.append(bytes + [0] * (CONTEXT - len(bytes)))
                lengths.append(len(bytes))
                labels.append(int(label == "question"))
        return torch.tensor(tokens), torch.tensor(lengths), torch.tensor(labels)

    class Bert(nn.Module):
        def __init__(self, layers=4, heads=4, c=128):
            super().__init__()
            self.words, self.positions, self.types = nn.Embedding(257, c), nn.Embedding(CONTEXT, c), nn.Embedding(2, c)
            self.norm, self.dropout = nn.LayerNorm(c, eps=1e-12), nn.Dropout(0.1)
            layer = lambda: nn.TransformerEncoderLayer(c, heads, 4 * c, 0.1, "gelu", layer_norm_eps=1e-12, batch_first=True)
            self.layers = nn.ModuleList(layer() for _ in range(layers))
            self.dense, self.classifier = nn.Linear(c, c), nn.Linear(c, 2)
            for name, p in self.named_parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)
                elif name.endswith("bias"):
                    nn.init.zeros_(p)

        def forward(self, tokens, lengths):
            x = self.dropout(self.norm(self.words(tokens) + self.types.weight[0] + self.positions.weight))
            absent = torch.arange(CONTEXT)[None] >= lengths[:, None]
            for layer in self.layers:
                x = layer(x, src_key_padding_mask=absent)
            return self.classifier(self.dropout(torch.tanh(self.dense(x[:, 0]))))

    data, validation = rows("train"), rows("val")
    for seed in range(seeds):
        torch.manual_seed(seed)
        model = Bert()
        matrices = [p for p in model.parameters() if p.dim() > 1]
        vectors = [p for p in model.parameters() if p.dim() < 2]
        optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0}], LR)
        rate = lambda s: min((s + 1) / 100, 1) if s < 100 else (1 + math.cos(math.pi * (s - 100) / (STEPS - 100))) / 2
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        began, order = time.time(), torch.empty(0, dtype=torch.int64)
        model.train()
        for _ in range(STEPS):
            if len(order) == 0:
                order = torch.randperm(len(data[0]))
            batch, order = order[:BATCH], order[BATCH:]
            loss = F.cross_entropy(model(data[0][batch], data[1][batch]), data[2][batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        seconds = time.time() - began
        model.eval()
        with torch.no_grad():
            logits = torch.cat([model(a, b) for a, b in zip(validation[0].split(256), validation[1].split(256))])
        print(f"seed {seed} loss {F.cross_entropy(logits, validation[2]):.4f} "
              f"accuracy {(logits.argmax(1) == validation[2]).double().mean():.4f} ({seconds:.1f} s)", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("make", "train"))
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if options.what == "make":
        make(*options.paths)
    else:
        train(options.paths[0], options.seeds)


if __name__ == "__main__":
    sys.exit(main())
