#!/usr/bin/env python3
"""Writes the golden files yolov3.safetensors and yolov3_tiny.safetensors for yolo_test.cpp: small networks and the loss
of detection in PyTorch, in float64. make_golden.py describes the contents, and computes inputs and parameters; of each
gradient there are at most 32 values, at even distances.

usage: make_yolo.py [FOLDER]        (default: the folder of this script; needs PyTorch and torchvision 0.15 or later)"""
import math
import os
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision.ops import box_iou, distance_box_iou_loss, generalized_box_iou_loss

from make_golden import fill_initial, hashed, images, ours, write_safetensors

CLASSES, SIDE, MOST = 3, 64, 4
FULL_ANCHORS = [[(4, 5), (6, 9), (10, 7)], [(12, 20), (20, 14), (18, 30)], [(30, 26), (40, 50), (60, 56)]]
TINY_ANCHORS = [[(6, 8), (10, 14), (16, 12)], [(20, 28), (34, 24), (48, 50)]]


class Unit(nn.Module):
    def __init__(self, cin, cout, kernel=1, stride=1):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.leaky_relu(self.norm(self.conv(x)), 0.1)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1, self.conv2 = Unit(c, c // 2), Unit(c // 2, c, 3)

    def forward(self, x):
        return x + self.conv2(self.conv1(x))


def stage(cin, blocks):
    parts = {"down": Unit(cin, 2 * cin, 3, 2)}
    parts.update({str(b): Block(2 * cin) for b in range(blocks)})
    return nn.ModuleDict(parts)


class Detector(nn.Module):
    """Gives the rows of all scales, from the coarsest on."""

    def rows(self, features):
        out, x = [], None
        for scale, own in zip(self.scales, features):
            if x is not None:
                own = torch.cat([F.interpolate(scale["narrow"](x), scale_factor=2, mode="nearest"), own], 1)
            x = scale["convs"](own) if "convs" in scale else own
            y = scale["boxes"](scale["last"](x))
            out.append(y.permute(0, 2, 3, 1).reshape(len(y), -1, 5 + CLASSES))
        return torch.cat(out, 1)


class Full(Detector):
    def __init__(self, width, blocks):
        super().__init__()
        self.stem = Unit(3, width, 3)
        self.stages = nn.ModuleList(stage(width << s, n) for s, n in enumerate(blocks))
        self.scales, own = nn.ModuleList(), width << len(blocks)
        for s in range(3):
            scale, half = nn.ModuleDict(), own // 2
            if s:
                scale["narrow"] = Unit(own, half)
            first = own + half if s else own
            scale["convs"] = nn.Sequential(Unit(first, half), Unit(half, own, 3), Unit(own, half), Unit(half, own, 3), Unit(own, half))
            scale["last"], scale["boxes"] = Unit(half, own, 3), nn.Conv2d(own, 3 * (5 + CLASSES), 1)
            self.scales.append(scale)
            own = half

    def forward(self, x):
        x, features = self.stem(x.permute(0, 3, 1, 2)), []
        for parts in self.stages:
            for part in parts.values():
                x = part(x)
            features.append(x)
        return self.rows(features[:1:-1])


class Tiny(Detector):
    def __init__(self, width):
        super().__init__()
        self.convs = nn.ModuleList(Unit(3 if i == 0 else width << (i - 1), width << i, 3) for i in range(7))
        head = lambda c: nn.Conv2d(c, 3 * (5 + CLASSES), 1)
        w = width * 16
        self.scales = nn.ModuleList([
            nn.ModuleDict({"convs": nn.Sequential(Unit(4 * w, w)), "last": Unit(w, 2 * w, 3), "boxes": head(2 * w)}),
            nn.ModuleDict({"narrow": Unit(w, w // 2), "last": Unit(w + w // 2, w, 3), "boxes": head(w)})])

    def forward(self, x):
        x = self.convs[0](x.permute(0, 3, 1, 2))
        for conv in self.convs[1:5]:
            x = conv(F.max_pool2d(x, 2))
        y = self.convs[5](F.max_pool2d(x, 2))
        y = F.max_pool2d(F.pad(y, (0, 1, 0, 1), value=-math.inf), 2, 1)
        return self.rows([self.convs[6](y), x])


def corners(centre, sides):
    return torch.cat([centre - sides / 2, centre + sides / 2], -1)


def targets(n):
    """Labels, centres and sides, as yolo_test.cpp makes them. The last box of each image is padding."""
    number = lambda name: hashed(name, n * MOST).astype(np.float64) / 2**24
    label = hashed("label", n * MOST) % np.uint64(CLASSES)
    columns = [label, 0.05 + 0.9 * number("x"), 0.05 + 0.9 * number("y"), 0.05 + 0.7 * number("w"), 0.05 + 0.7 * number("h")]
    boxes = np.stack(columns, 1).astype(np.float32).astype(np.float64).reshape(n, MOST, 5)
    boxes[:, -1] = -1
    return torch.from_numpy(boxes)


def loss_of(rows, boxes, anchors, box_loss, ignore=0.5, box_weight=2):
    """Image by image and box by box."""
    total = 0
    for x, given in zip(rows, boxes):
        given = given[given[:, 0] >= 0]
        truth = corners(given[:, 1:3], given[:, 3:5])
        places, decoded = [], []
        for s, of_scale in enumerate(reversed(anchors)):
            g = SIDE // 32 << s
            places += [(s, r, c, a) for r in range(g) for c in range(g) for a in range(3)]
        for t, (s, r, c, a) in zip(x, places):
            g = SIDE // 32 << s
            anchor = torch.tensor(anchors[len(anchors) - 1 - s][a]) / SIDE
            centre = (t[:2].sigmoid() + torch.tensor([c, r])) / g
            decoded.append(corners(centre, anchor * t[2:4].clamp(max=4.135).exp()))
        decoded = torch.stack(decoded)
        responsible = []
        for box in given:
            shape = lambda w, h: torch.tensor([[0, 0, w, h]])
            every = [(s, a) for s in range(len(anchors) - 1, -1, -1) for a in range(3)]
            ious = [float(box_iou(shape(*box[3:5]), shape(*[p / SIDE for p in anchors[len(anchors) - 1 - s][a]]))) for s, a in every]
            s, a = every[int(np.argmax(ious))]
            g = SIDE // 32 << s
            responsible.append(places.index((s, int(box[2] * g), int(box[1] * g), a)))
        near = box_iou(decoded, truth).max(1).values > ignore
        for i in range(len(x)):
            sought = i in responsible
            if sought or not near[i]:
                total = total + F.binary_cross_entropy_with_logits(x[i, 4], torch.tensor(float(sought)))
        for box, where, i in zip(given, truth, responsible):
            total = total + box_weight * box_loss(decoded[i], where, eps=0)
            label = F.one_hot(box[0].long(), CLASSES).to(x.dtype)
            total = total + F.binary_cross_entropy_with_logits(x[i, 5:], label, reduction="sum")
    return total / len(rows)


def make(folder, case, model, anchors, box_loss):
    fill_initial(model)
    x, y, out, losses = images(2, SIDE), targets(2), {}, []
    opt = torch.optim.SGD(model.parameters(), 1e-5, momentum=0.9, weight_decay=1e-3)
    model.train()
    for step in range(10):
        opt.zero_grad()
        rows = model(x)
        loss = loss_of(rows, y, anchors, box_loss)
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            out["logits"] = rows
            for name, p in model.named_parameters():
                g = ours(p.grad).flatten()
                out["grad/" + name] = g[:: max(1, g.numel() // 32)][:32].clone()
        opt.step()
    out["losses"] = torch.stack(losses)
    out["eval_logits"] = model.eval()(x)
    write_safetensors(os.path.join(folder, case + ".safetensors"), out)
    print(case, "losses", float(losses[0]), "->", float(losses[-1]))


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    make(folder, "yolov3", Full(2, [1, 0, 1, 1, 1]), FULL_ANCHORS, generalized_box_iou_loss)
    make(folder, "yolov3_tiny", Tiny(1), TINY_ANCHORS, distance_box_iou_loss)


if __name__ == "__main__":
    main()
