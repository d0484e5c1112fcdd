#!/usr/bin/env python3
"""Writes the golden file lstm.safetensors for lstm_golden_test.cpp: a small language model around PyTorch's nn.LSTM, in
float64, in evaluation form (no dropout).

usage: make_lstm.py [FOLDER]        (default: the folder of this script; needs PyTorch 1.13 or later)

It holds logits, losses, grad/<name> and eval_logits, as make_golden.py describes them. Parameters, inputs and targets
are not stored: both sides compute them by hashed()."""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import decayed, fill_initial, integers, write_safetensors

LAYERS, CHANNELS, HIDDEN, SYMBOLS, LENGTH, BATCH = 2, 12, 20, 40, 9, 3


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(SYMBOLS, CHANNELS), nn.Linear(HIDDEN, SYMBOLS)
        self.rnn = nn.LSTM(CHANNELS, HIDDEN, LAYERS, batch_first=True)

    def forward(self, tokens):
        return self.decoder(self.rnn(self.encoder(tokens))[0])


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    model = Model()
    tokens, targets = integers("input", (BATCH, LENGTH), SYMBOLS), integers("target", (BATCH, LENGTH), SYMBOLS)
    fill_initial(model)
    optimizer = torch.optim.AdamW(decayed(model, 0.1), 3e-3, betas=(0.9, 0.95))
    out, losses = {}, []
    for step in range(10):
        optimizer.zero_grad()
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten())
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out["logits"] = logits
            out.update(("grad/" + name, p.grad.clone()) for name, p in model.named_parameters())
        optimizer.step()
    out["losses"], out["eval_logits"] = torch.stack(losses), model(tokens)
    write_safetensors(os.path.join(folder, "lstm.safetensors"), out)
    print("losses", float(losses[0]), "->", float(losses[-1]))


if __name__ == "__main__":
    main()
