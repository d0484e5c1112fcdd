#!/usr/bin/env python3
"""Compares the learning curves of ResNet-20 on CIFAR-10 with those of PyTorch, from equal weights and equal batches.

usage: curves.py CIFAR10 [--train build/bin/train] [--seeds 5] [--steps 200] [--lr 0.1] [--threads N]

CIFAR10 is a .tar of train/<class>/*.jpg and test/<class>/*.jpg. Needs torch and Pillow. For each seed PyTorch draws the
initial weights and an order of the images; both programs then take the same batches of 128, without augmentation. Prints
the mean loss of 20 steps at a time and the accuracy on the test images, and how the difference between the programs
compares with the spread over the seeds."""
import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile

import numpy
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden"))
from make_golden import ResNet

BATCH, MOMENTUM, DECAY, WINDOW = 128, 0.9, 5e-4, 20
MEAN, STD = numpy.array([0.4914, 0.4822, 0.4465]), numpy.array([0.247, 0.2435, 0.2616])


def read_tar(path, wanted, per_class):
    """Returns images (N, 32, 32, 3) and labels: the first `per_class` of each class."""
    images, labels, classes = [], [], {}
    with tarfile.open(path) as tar:
        members = sorted((m for m in tar.getmembers() if m.isfile() and m.name.startswith(wanted + "/")),
                         key=lambda m: m.name)
        for m in members:
            name = m.name.split("/")[1]
            taken = classes.setdefault(name, [len(classes), 0])
            if taken[1] == per_class:
                continue
            taken[1] += 1
            images.append(numpy.asarray(Image.open(io.BytesIO(tar.extractfile(m).read())).convert("RGB")))
            labels.append(taken[0])
    return numpy.stack(images), numpy.array(labels)


def write_bin(path, images, labels):
    """Writes CIFAR-10's binary form."""
    records = numpy.concatenate([labels[:, None].astype(numpy.uint8),
                                 images.transpose(0, 3, 1, 2).reshape(len(images), -1)], 1)
    records.tofile(path)


def prepared(images):
    return torch.from_numpy(((images / 255.0 - MEAN) / STD).astype(numpy.float32))


def torch_run(model, images, labels, test, steps, lr):
    opt = torch.optim.SGD(model.parameters(), lr, momentum=MOMENTUM, weight_decay=DECAY)
    losses = []
    model.train()
    for step in range(steps):
        at = slice(step * BATCH, (step + 1) * BATCH)
        loss = F.cross_entropy(model(prepared(images[at])), torch.from_numpy(labels[at]))
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        right = sum((model(prepared(test[0][i : i + 500])).argmax(1).numpy() == test[1][i : i + 500]).sum()
                    for i in range(0, len(test[1]), 500))
    return losses, right / len(test[1])


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def engine_run(train, folder, model, steps, threads, lr):
    save_file({k: v.contiguous() for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")},
              os.path.join(folder, "weights.safetensors"))
    config, directory = os.path.join(folder, "run.toml"), os.path.join(folder, "run")
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"""
[run]
steps = {steps}
batch_size = {BATCH}
virtual_ranks = 1
eval_every = {steps}
[model]
kind = "resnet20"
[data]
kind = "cifar10"
path = "{folder}"
shuffle = false
mean = {MEAN.tolist()}
std = {STD.tolist()}
[optimizer]
kind = "sgd"
lr = {lr}
momentum = {MOMENTUM}
weight_decay = {DECAY}
""")
    run(train, "import", os.path.join(folder, "weights.safetensors"), config, directory)
    run(train, "resume", directory, "--threads", str(threads))
    with open(os.path.join(directory, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    losses = {m["step"]: m["loss"] for m in lines if "loss" in m and m.get("split", "train") == "train"}
    scored = run(train, "eval", directory, "--split", "test", "--threads", str(threads))
    accuracy = float(scored.split("accuracy=")[1].split()[0])
    return [losses[s] for s in sorted(losses)][:steps], accuracy


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cifar10")
    parser.add_argument("--train", default="build/bin/train")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    a = parser.parse_args()
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(a.threads)
    per_class = -(-a.steps * BATCH // 10)
    images, labels = read_tar(a.cifar10, "train", per_class)
    test = read_tar(a.cifar10, "test", 200)
    curves, accuracies = {"engine": [], "PyTorch": []}, {"engine": [], "PyTorch": []}
    for seed in range(a.seeds):
        torch.manual_seed(seed)
        order = torch.randperm(len(labels)).numpy()
        model = ResNet([16, 32, 64], False, False, 10, [3, 3, 3])
        for p in model.modules():
            if isinstance(p, torch.nn.Conv2d):
                torch.nn.init.kaiming_normal_(p.weight, mode="fan_out", nonlinearity="relu")
        with tempfile.TemporaryDirectory() as folder:
            write_bin(os.path.join(folder, "data_batch_1.bin"), images[order], labels[order])
            write_bin(os.path.join(folder, "test_batch.bin"), *test)
            results = {"engine": engine_run(a.train, folder, model, a.steps, a.threads, a.lr)}
        results["PyTorch"] = torch_run(model, images[order], labels[order], test, a.steps, a.lr)
        for name, (losses, accuracy) in results.items():
            means = [float(numpy.mean(losses[i : i + WINDOW])) for i in range(0, a.steps, WINDOW)]
            curves[name].append(means)
            accuracies[name].append(accuracy)
            print(f"seed {seed} {name:8}", " ".join(f"{m:.3f}" for m in means), f"accuracy {accuracy:.3f}", flush=True)
    for what, ours, theirs in (("last loss", [c[-1] for c in curves["engine"]], [c[-1] for c in curves["PyTorch"]]),
                               ("accuracy", accuracies["engine"], accuracies["PyTorch"])):
        spread = numpy.std(theirs, ddof=1)
        print(f"{what}: engine {numpy.mean(ours):.4f}, PyTorch {numpy.mean(theirs):.4f}, "
              f"difference {numpy.mean(ours) - numpy.mean(theirs):+.4f}, spread over seeds {spread:.4f}")


if __name__ == "__main__":
    main()
