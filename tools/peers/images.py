#!/usr/bin/env python3
"""Repeats `bench data` with torchvision's transforms of PIL images on the same files (pip install torchvision).

usage: images.py PATH [PROCESSES ...]     a folder or .tar with images; default: 1 2

Prints images per second of each case for each number of processes, which correspond to the workers of torch's
DataLoader. Pixels stay in the process that made them, so no time is spent on sending them."""
import io
import multiprocessing
import os
import sys
import tarfile
import time

import numpy
import torch
from PIL import Image
from torchvision import transforms

NORMALISED = [transforms.ToTensor(), transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
TRAIN = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
CASES = {"decode": numpy.asarray,
         "train": transforms.Compose(TRAIN + NORMALISED),
         "train jitter": transforms.Compose(TRAIN + [transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)] + NORMALISED),
         "eval": transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)] + NORMALISED)}
REPEAT = 5


def files_of(path):
    def is_image(name):
        return name.lower().endswith((".jpg", ".jpeg", ".png"))
    if os.path.isdir(path):
        names = sorted(os.path.join(d, f) for d, _, fs in os.walk(path) for f in fs if is_image(f))
        return [open(name, "rb").read() for name in names]
    with tarfile.open(path) as tar:
        return [tar.extractfile(m).read() for m in sorted(tar, key=lambda m: m.name) if m.isfile() and is_image(m.name)]


def work(case, share, repeat):
    torch.set_num_threads(1)
    for _ in range(repeat):
        for data in share:
            CASES[case](Image.open(io.BytesIO(data)).convert("RGB"))


def main():
    files = files_of(sys.argv[1])
    for processes in [int(n) for n in sys.argv[2:]] or [1, 2]:
        for case in CASES:
            work(case, files[:8], 1)
            workers = [multiprocessing.Process(target=work, args=(case, files[i::processes], REPEAT))
                       for i in range(processes)]
            start = time.perf_counter()
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            seconds = time.perf_counter() - start
            print(f"{processes} processes  {case:14} {REPEAT * len(files) / seconds:8.1f} images/s", flush=True)


if __name__ == "__main__":
    main()
