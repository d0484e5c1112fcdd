#!/usr/bin/env python3
"""Writes the golden file unet.safetensors for golden_test.cpp: a small U-Net in PyTorch, in float64. make_golden.py
describes the contents, and computes inputs and parameters.

usage: make_unet.py [FOLDER]        (default: the folder of this script; needs PyTorch 1.13 or later)"""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import images, integers, make


class DoubleConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(c, cout, 3, padding=1, bias=False) for c in (cin, cout))
        self.bn1, self.bn2 = nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)

    def convs(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


class Up(DoubleConv):
    def __init__(self, width):
        super().__init__(width, width // 2)
        self.rise = nn.ConvTranspose2d(width, width // 2, 2, stride=2)


class UNet(nn.Module):
    def __init__(self, width, levels, classes):
        super().__init__()
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        cin = 3
        for _ in range(levels):
            self.down.append(DoubleConv(cin, width))
            cin, width = width, 2 * width
        self.bottom = DoubleConv(cin, width)
        for _ in range(levels):
            self.up.append(Up(width))
            width //= 2
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        x, kept = x.permute(0, 3, 1, 2), []
        for level in self.down:
            kept.append(level.convs(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.bottom.convs(x)
        for level in self.up:
            x = level.convs(torch.cat([kept.pop(), level.rise(x)], 1))
        return self.head(x).permute(0, 2, 3, 1)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    sgd = lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, weight_decay=1e-3)
    make(folder, "unet", UNet(4, 2, 3), images(2, 8), integers("target", (2, 8, 8), 3), sgd)


if __name__ == "__main__":
    main()
