#!/usr/bin/env python3
"""Trains a configuration for CIFAR-10 in PyTorch: the counterpart of `train run CONFIG`, for models/RESULTS.md.

usage: cifar.py CONFIG CIFAR10.tar [--seeds 0 1 2] [--threads 2] [--set run.epochs=10 ..]   (needs torchvision, Pillow)

CIFAR10.tar has train/<class>/*.jpg and test/<class>/*.jpg. Augmentation, batches, schedule, optimizer and sizes are those
of the configuration; initial values and random numbers are PyTorch's. A step computes its gradient on the whole batch,
so batch norm sees it whole, and not a share for each virtual rank. Prints loss and accuracy on the test images for each
seed, and the time of training."""
import copy
import io
import math
import sys
import tarfile

import numpy
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image
from torch import nn

from seeds import print_scores, read_options
from torch_networks import images as networks

MEAN, STD = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.247, 0.2435, 0.2616])


def read_tar(path):
    """Returns bytes (N, 32, 32, 3) and labels of each split."""
    splits = {"train": ([], []), "test": ([], [])}
    with tarfile.open(path) as tar:
        members = [m for m in tar if m.isfile() and m.name.endswith(".jpg")]
        classes = sorted({m.name.split("/")[1] for m in members})
        for m in sorted(members, key=lambda m: m.name):
            split, label, _ = m.name.split("/")
            pixels = Image.open(io.BytesIO(tar.extractfile(m).read())).convert("RGB")
            splits[split][0].append(numpy.asarray(pixels))
            splits[split][1].append(classes.index(label))
    return {name: (torch.from_numpy(numpy.stack(x)), torch.tensor(y)) for name, (x, y) in splits.items()}


def prepared(images):
    return ((images / 255.0 - MEAN) / STD).permute(0, 3, 1, 2)


def augmented(images, indices, epoch, data):
    """Normalised images (N, 3, 32, 32), cropped, mirrored and with a square blanked."""
    x, n, p = prepared(images[indices]), len(indices), data.get("crop_padding", 0)
    if p > 0:
        black = ((0 - MEAN) / STD)[None, :, None, None]
        padded = (F.pad(x, (p,) * 4, mode="reflect") if data.get("padding_mode") == "reflect"
                  else F.pad(x - black, (p,) * 4) + black)
        down, right = torch.randint(0, 2 * p + 1, (2, n, 1))
        places = torch.arange(32)
        x = padded[torch.arange(n)[:, None, None], :, (down + places)[:, :, None], (right + places)[:, None, :]]
        x = x.permute(0, 3, 1, 2)
    if data.get("flip"):
        mirrored = (indices * 2654435761 // 2**16 + epoch) % 2 == 1 if data.get("alternate_flip") else torch.rand(n) < 0.5
        x = torch.where(mirrored[:, None, None, None], x.flip(3), x)
    side = data.get("cutout", 0)
    if side > 0:
        down, right = torch.randint(0, 32, (2, n, 1)) - side // 2
        places = torch.arange(32)
        inside = lambda first: (places >= first) & (places < first + side)
        x = x.masked_fill((inside(down)[:, :, None] & inside(right)[:, None, :])[:, None], 0.0)
    return x.contiguous(memory_format=torch.channels_last)  # faster for convolutions


def small_resnet(widths, blocks):
    network = networks.small_resnet(widths, blocks)
    for m in network.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    return network


def small_mobilenet(width):
    """MobileNet-v2 without its first two strides."""
    network = torchvision.models.mobilenet_v2(num_classes=10, width_mult=width)
    network.features[0][0].stride = (1, 1)
    network.features[2].conv[1][0].stride = (1, 1)
    return network


def network_of(model, side=32):
    kind = model["kind"]
    if kind.startswith("resnet"):
        depth = (int(kind[6:]) - 2) // 6 if kind != "resnet" else 0
        return small_resnet(model.get("widths", [16, 32, 64]), model.get("blocks", [depth] * 3))
    if kind == "mobilenet_v2":
        return small_mobilenet(model.get("width", 1.0))
    if kind == "vit_tiny":
        channels = model.get("channels", 192)
        network = torchvision.models.VisionTransformer(side, model.get("patch", 4), model.get("layers", 12),
                                                       model.get("heads", 3), channels,
                                                       model.get("hidden", 4 * channels),
                                                       dropout=model.get("dropout", 0.0), num_classes=10)
        for block in network.encoder.layers:
            block.mlp[2].p = 0.0  # models/vit.cpp has dropout at the end of each branch alone
        return network
    sys.exit(f"cifar.py: model.kind must be resnet.., mobilenet_v2 or vit_tiny, not {kind}")


def optimizer_of(network, settings):
    exempt = settings.get("exempt", [])
    spared = lambda name, p: ("vectors" in exempt and p.dim() < 2) or name in exempt
    named, decay = list(network.named_parameters()), settings.get("weight_decay", 0.0)
    groups = [{"params": [p for n, p in named if not spared(n, p)], "weight_decay": decay},
              {"params": [p for n, p in named if spared(n, p)], "weight_decay": 0.0}]
    if settings["kind"] == "sgd":
        return torch.optim.SGD(groups, settings["lr"], momentum=settings.get("momentum", 0.0),
                               nesterov=settings.get("nesterov", False))
    return torch.optim.AdamW(groups, settings["lr"])


def score(network, images, labels, smoothing):
    """Loss with the smoothing of training, as the engine has it, and accuracy."""
    network.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for x, y in zip(images.split(500), labels.split(500)):
            logits = network(prepared(x))
            loss += F.cross_entropy(logits, y, reduction="sum", label_smoothing=smoothing).item()
            right += (logits.argmax(1) == y).sum().item()
    network.train()
    return loss / len(labels), right / len(labels)


def follow(average, network, rate):
    """Moves the average of the weights and buffers (nn/weight_average.h)."""
    with torch.no_grad():
        for a, b in zip(average.state_dict().values(), network.state_dict().values()):
            a.copy_(torch.lerp(a, b, rate) if a.is_floating_point() else b)


def smoothing_of(config):
    return config.get("loss", {}).get("label_smoothing", 0.0)


def train(config, splits, seed):
    torch.manual_seed(seed)
    run, data, settings = config["run"], config["data"], config["optimizer"]
    images, labels = splits["train"]
    batch, warmup = run["batch_size"], config["schedule"].get("warmup_steps", 0)
    network = network_of(config["model"]).to(memory_format=torch.channels_last)
    steps_of_epoch = math.ceil(len(labels) / batch)
    steps = math.ceil(run["epochs"] * steps_of_epoch)
    optimizer, decay = optimizer_of(network, settings), settings.get("ema_decay", 0.0)
    rate = lambda s: (s + 1) / warmup if s < warmup else (1 + math.cos(math.pi * (s - warmup) / (steps - warmup))) / 2
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    average = copy.deepcopy(network) if decay > 0.0 else network
    smoothing = smoothing_of(config)
    for step in range(steps):
        epoch = step // steps_of_epoch
        if step % steps_of_epoch == 0:
            order = torch.randperm(len(labels))
        indices = order[step % steps_of_epoch * batch :][:batch]
        plain = 0 < data.get("augment_epochs", 0) <= epoch
        x = prepared(images[indices]) if plain else augmented(images, indices, epoch, data)
        loss = F.cross_entropy(network(x), labels[indices], label_smoothing=smoothing)
        optimizer.zero_grad()
        loss.backward()
        if "clip_norm" in settings:
            nn.utils.clip_grad_norm_(network.parameters(), settings["clip_norm"])
        optimizer.step()
        schedule.step()
        if decay > 0.0:
            follow(average, network, 1 - min(decay, (1 + step) / (10 + step)))
    return average


def main():
    options, config = read_options("images")
    splits = read_tar(options.images)
    print_scores(options.seeds, lambda seed: train(config, splits, seed),
                 lambda network: score(network, *splits["test"], smoothing_of(config)))


if __name__ == "__main__":
    main()
