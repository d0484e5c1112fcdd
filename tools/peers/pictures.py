#!/usr/bin/env python3
"""Trains networks on pictures of shapes in PyTorch: the counterpart of models/configs/unet_masks.toml (`masks`) and
yolov3_tiny_boxes.toml (`boxes`), for models/RESULTS.md.

usage: pictures.py masks|boxes [--seeds 0 1 2] [--threads 2]     (needs PyTorch and torchvision)

Images, batches, virtual ranks, schedule, optimiser, sizes and the distributions of initial values are those of the
configuration; the values themselves and the order of images are PyTorch's. Prints the loss and the metrics on the
validation images for each seed, and the time of training."""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.ops import batched_nms

from philox import below, key_of, philox
from torch_networks.boxes import BoxLoss, YoloV3Tiny
from torch_networks.images import UNet, Unit

BATCH, VIRTUAL_RANKS = 16, 2


def pixels_of(clean, noise, words):
    """Normalised images (N, 3, side, side) of colours (N, side, side, 3), to which bytes of words(block) add noise."""
    n, side = clean.shape[0], clean.shape[1]
    flat = clean.reshape(n, -1).copy()
    for block in range(math.ceil(flat.shape[1] / 16)):
        for at, word in enumerate(words(block)):
            for byte in range(4):
                i = 16 * block + 4 * at + byte
                if i < flat.shape[1]:
                    b = (word >> np.uint64(8 * byte) & np.uint64(255)).astype(np.int64)
                    flat[:, i] += np.fix((2 * b - 255) * noise / 255).astype(np.int64)
    values = (np.clip(flat, 0, 255) - 128).astype(np.float32) / 64
    return torch.from_numpy(values.reshape(n, side, side, 3)).permute(0, 3, 1, 2).contiguous()


def masks(part, size, side=32, classes=5, noise=int(0.5 * 255)):
    """Images and classes of their pixels of data/synthetic_masks.cpp."""
    key, index = key_of("data.synthetic_masks"), np.arange(size, dtype=np.uint64)
    words = lambda block: philox(key, 1 + part, index, 0, block)
    colours = (philox(key, 0, np.arange(classes)[:, None], np.arange(3)[None], 0)[0] >> np.uint64(24)).astype(np.int64)
    mask, i, j = np.zeros((size, side, side), np.int64), np.arange(side)[None, :, None], np.arange(side)[None, None, :]
    for thing in range(4):
        column = lambda words: words[:, None, None]
        place, form = words(2 * thing), words(2 * thing + 1)
        y, x = column(below(place[0], side)), column(below(place[1], side))
        h, w = column(2 + below(place[2], side // 3)), column(2 + below(place[3], side // 3))
        inside = (i >= y - h) & (i < y + h) & (j >= x - w) & (j < x + w)
        disc = (i - y) ** 2 * w * w + (j - x) ** 2 * h * h < h * h * w * w
        inside &= disc | column(form[1] >> np.uint64(31) == 0)
        mask = np.where(inside, column(below(form[0], classes)), mask)
    return pixels_of(colours[mask], noise, lambda block: words(8 + block)), torch.from_numpy(mask)


def shapes_of(words, side, classes):
    """Up to four shapes (label, top, left, height, width) that do not overlap, from words(block) of one image."""
    shapes, least = [], side // 6
    more = side // 2 - least + 1
    of = lambda word, n: int(word) * n >> 32
    for s in range(1 + of(words(0)[0], 4)):
        for t in range(4):
            form, place = words(1 + 2 * (4 * s + t)), words(2 + 2 * (4 * s + t))
            h, w = least + of(form[1], more), least + of(form[2], more)
            y, x = of(place[0], side - h + 1), of(place[1], side - w + 1)
            if any(y < b + d and b < y + h and x < c + e and c < x + w for _, b, c, d, e in shapes):
                continue
            shapes.append((of(form[0], classes), y, x, h, w))
            break
    return shapes


def covered(label, h, w):
    """The pixels (h, w) that a shape covers: a rectangle, an ellipse or a triangle."""
    i, j = np.arange(h)[:, None], np.arange(w)[None]
    up, right = 2 * i + 1 - h, 2 * j + 1 - w
    if label == 1:
        return up * up * w * w + right * right * h * h <= h * h * w * w
    if label == 2:
        return (np.abs(right) - 1) * (h - 1) <= (w - 1) * i
    return np.ones((h, w), bool)


def boxes(part, size, side=96, classes=3, noise=int(0.25 * 255)):
    """Images and their boxes (N, 4, 5) of data/synthetic_boxes.cpp; a label of -1 is padding."""
    key, index = key_of("data.synthetic_boxes"), np.arange(size, dtype=np.uint64)
    all_words = [np.stack(philox(key, 1 + part, index, 0, block), 1) for block in range(33)]
    word = philox(key, 0, np.arange(classes)[:, None], np.arange(3)[None], 0)[0]
    colours = np.where(word >> np.uint64(31) != 0, 192, 0) + (word & np.uint64(63)).astype(np.int64)
    clean, targets = np.full((size, side, side, 3), 128, np.int64), torch.zeros(size, 4, 5)
    targets[:, :, 0] = -1
    for n in range(size):
        for s, (label, y, x, h, w) in enumerate(shapes_of(lambda block: all_words[block][n], side, classes)):
            clean[n, y:y + h, x:x + w][covered(label, h, w)] = colours[label]
            targets[n, s] = torch.tensor([label, (x + w / 2) / side, (y + h / 2) / side, w / side, h / side])
    return pixels_of(clean, noise, lambda block: philox(key, 1 + part, index, 0, 33 + block)), targets


class Masks:
    """A U-Net that finds the class of each pixel."""
    steps, warmup, lr, train_size = 400, 0, 0.003, 5000
    data = staticmethod(masks)

    def network(self):
        return UNet(16)

    def loss(self, logits, target):
        return F.cross_entropy(logits, target)

    def metrics(self, logits, target):
        found = logits.argmax(1)
        both = torch.bincount(target[found == target], minlength=5)
        either = torch.bincount(target.flatten(), minlength=5) + torch.bincount(found.flatten(), minlength=5) - both
        return {"accuracy": (found == target).double().mean().item(), "iou": (both / either)[either > 0].mean().item()}


class Boxes:
    """A YOLOv3-tiny that finds boxes."""
    steps, warmup, lr, train_size = 1000, 100, 0.002, 10000
    anchors = ((24, 24, 24, 42, 42, 24), (14, 14, 14, 26, 26, 14))  # the coarsest scale first
    data = staticmethod(boxes)

    def network(self):
        network = YoloV3Tiny(3, 8)
        for head in network.last:
            nn.init.normal_(head[-1].weight, std=0.01)
            nn.init.zeros_(head[-1].bias)
            with torch.no_grad():
                head[-1].bias[4::8] = -4.595
        return network

    def loss(self, rows, target):
        return BoxLoss(self.anchors, target, 3, "cpu", 96)(rows) / len(rows)

    def metrics(self, rows, target):
        boxes = BoxLoss(self.anchors, target, 3, "cpu", 96)
        corners = boxes.boxes(rows, boxes.cells)
        scores = rows[..., 4:5].sigmoid() * rows[..., 5:].sigmoid()
        found = []  # score, label, and whether it is right at each threshold
        for own, score, truth, labels in zip(corners, scores, boxes.truth, target[..., 0]):
            row, label = (score >= 0.01).nonzero(as_tuple=True)
            best = score[row, label].argsort(descending=True, stable=True)[:1000]
            row, label = row[best], label[best]
            kept = batched_nms(own[row], score[row, label], label, 0.5)[:100]
            row, label = row[kept], label[kept]
            overlap = BoxLoss.iou(own[row][:, None], truth[None])[0] * (label[:, None] == labels[None])
            taken = np.zeros((10, len(labels)), bool)
            for s, k, of_boxes in zip(score[row, label].tolist(), label.tolist(), overlap.numpy()):
                right = np.zeros(10, bool)
                for t in range(10):
                    free = np.where(taken[t], -1, of_boxes)
                    if free.max() >= (50 + 5 * t) / 100:
                        taken[t, free.argmax()] = right[t] = True
                found.append((s, k, right))
        found.sort(key=lambda d: -d[0])
        means = np.mean([average_precision(np.array([d[2] for d in found if d[1] == k]).reshape(-1, 10),
                                           (target[..., 0] == k).sum().item()) for k in range(3)], 0)
        return {"map50": means[0], "map": means.mean()}


def average_precision(right, boxes):
    """COCO's, of detections (D, thresholds) in descending order of scores: the mean over 101 recalls."""
    hits = right.cumsum(0)
    precision = hits / np.arange(1, len(right) + 1)[:, None]
    highest = np.vstack([np.maximum.accumulate(precision[::-1])[::-1], np.zeros(right.shape[1])])
    recalls = np.arange(101) * boxes / 100
    return [np.mean([highest[np.searchsorted(hits[:, t], r), t] for r in recalls]) for t in range(right.shape[1])]


def evaluate(task, network, images, targets):
    network.eval()
    with torch.no_grad():
        outputs = torch.cat([network(x) for x in images.split(100)])
        loss = torch.stack([task.loss(o, t) * len(o) for o, t in zip(outputs.split(100), targets.split(100))]).sum()
    return {"loss": loss.item() / len(images), **task.metrics(outputs, targets)}


def train(task, images, targets, seed):
    torch.manual_seed(seed)
    network, order = task.network(), torch.empty(0, dtype=torch.int64)
    for module in network.modules():
        if isinstance(module, Unit):
            nn.init.kaiming_normal_(module[0].weight, mode="fan_out")
        if isinstance(module, nn.BatchNorm2d):  # all virtual ranks of a step move its statistics by 0.1
            module.momentum = 1 - 0.9 ** (1 / VIRTUAL_RANKS)
    optimizer = torch.optim.Adam(network.parameters(), task.lr)
    rate = lambda s: ((s + 1) / task.warmup if s < task.warmup
                      else (1 + math.cos(math.pi * (s - task.warmup) / (task.steps - task.warmup))) / 2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    for _ in range(task.steps):
        if len(order) == 0:
            order = torch.randperm(len(images))
        batch, order = order[:BATCH], order[BATCH:]
        optimizer.zero_grad()
        for share in batch.chunk(VIRTUAL_RANKS):  # batch norm sees one share at a time
            (task.loss(network(images[share]), targets[share]) / VIRTUAL_RANKS).backward()
        optimizer.step()
        schedule.step()
    return network


def main():
    tasks = {"masks": Masks(), "boxes": Boxes()}
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=tasks)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    task = tasks[options.task]
    images, targets = task.data(0, task.train_size)
    validation = task.data(1, task.train_size // 10)
    for seed in options.seeds:
        began = time.time()
        network = train(task, images, targets, seed)
        seconds = time.time() - began
        scores = evaluate(task, network, *validation)
        print(f"seed {seed} " + " ".join(f"{k} {v:.4f}" for k, v in scores.items()) + f" ({seconds:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
