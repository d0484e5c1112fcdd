#!/usr/bin/env python3
"""What `bench data` does, with PIL and NumPy as torchvision's transforms use them, on the same files.

usage: images.py PATH [PROCESSES ...]     a folder or .tar with images; default: 1 2

Prints images per second of each case for so many processes (torch's DataLoader has a process a worker). Pixels stay in
the process that made them, so nothing is lost on sending them."""
import io
import math
import multiprocessing
import os
import random
import sys
import tarfile
import time

import numpy
from PIL import Image, ImageEnhance

MEAN = numpy.array([0.485, 0.456, 0.406], numpy.float32)
STD = numpy.array([0.229, 0.224, 0.225], numpy.float32)


def files_of(path):
    def is_image(name):
        return name.lower().endswith((".jpg", ".jpeg", ".png"))
    if os.path.isdir(path):
        names = sorted(os.path.join(d, f) for d, _, fs in os.walk(path) for f in fs if is_image(f))
        return [open(name, "rb").read() for name in names]
    with tarfile.open(path) as tar:
        return [tar.extractfile(m).read() for m in sorted(tar, key=lambda m: m.name) if m.isfile() and is_image(m.name)]


def decode(data):
    return Image.open(io.BytesIO(data)).convert("RGB")


def random_resized_crop(image):
    w, h = image.size
    for _ in range(10):
        area, aspect = random.uniform(0.08, 1) * w * h, math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        cw, ch = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < cw <= w and 0 < ch <= h:
            x, y = random.randint(0, w - cw), random.randint(0, h - ch)
            return image.crop((x, y, x + cw, y + ch)).resize((224, 224), Image.BILINEAR)
    return image.resize((224, 224), Image.BILINEAR)


def jitter(image):
    def hue(image):
        h, s, v = image.convert("HSV").split()
        shifted = (numpy.asarray(h).astype(numpy.int16) + round(random.uniform(-0.1, 0.1) * 255)) % 256
        return Image.merge("HSV", (Image.fromarray(shifted.astype(numpy.uint8), "L"), s, v)).convert("RGB")
    def enhanced(kind):
        return lambda image: kind(image).enhance(random.uniform(0.6, 1.4))
    steps = [enhanced(ImageEnhance.Brightness), enhanced(ImageEnhance.Contrast), enhanced(ImageEnhance.Color), hue]
    random.shuffle(steps)
    for step in steps:
        image = step(image)
    return image


def normalise(image):
    return (numpy.asarray(image, numpy.float32) / 255 - MEAN) / STD


def train(data, also=lambda image: image):
    image = random_resized_crop(decode(data))
    if random.random() < 0.5:
        image = image.transpose(Image.FLIP_LEFT_RIGHT)
    return normalise(also(image))


def evaluate(data):
    image = decode(data)
    w, h = image.size
    scale = 256 / min(w, h)
    w, h = max(256, round(w * scale)), max(256, round(h * scale))
    image = image.resize((w, h), Image.BILINEAR)
    left, top = (w - 224) // 2, (h - 224) // 2
    return normalise(image.crop((left, top, left + 224, top + 224)))


CASES = {"decode": lambda data: numpy.asarray(decode(data)), "train": train, "train jitter": lambda d: train(d, jitter),
         "eval": evaluate}


def work(case, share, repeat):
    for _ in range(repeat):
        for data in share:
            CASES[case](data)


def main():
    files = files_of(sys.argv[1])
    for processes in [int(n) for n in sys.argv[2:]] or [1, 2]:
        for case in CASES:
            work(case, files[:8], 1)
            repeat = 5
            workers = [multiprocessing.Process(target=work, args=(case, files[i::processes], repeat))
                       for i in range(processes)]
            start = time.perf_counter()
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            seconds = time.perf_counter() - start
            print(f"{processes} processes  {case:14} {repeat * len(files) / seconds:8.1f} images/s", flush=True)


if __name__ == "__main__":
    main()
