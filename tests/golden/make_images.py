#!/usr/bin/env python3
"""Writes with PIL the image files of data_formats_test.cpp that need an encoder.

usage: make_images.py [FOLDER]       (default: images/ next to this script)

24 x 16 pixels: red (or cyan, or grey) is 10 x, green (magenta) is 16 y, blue (yellow) is 100, black is 60."""
import os
import sys

from PIL import Image, ImageOps

W, H = 24, 16
FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")
FINE = {"quality": 95, "subsampling": 0}


def filled(mode, pixel):
    image = Image.new(mode, (W, H))
    image.putdata([pixel(x, y) for y in range(H) for x in range(W)])
    return image


def path(name):
    return os.path.join(FOLDER, name)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    rgb = filled("RGB", lambda x, y: (10 * x, 16 * y, 100))
    rgb.save(path("progressive.jpg"), progressive=True, **FINE)
    rgb.save(path("subsampled.jpg"), quality=95, subsampling=2)
    filled("L", lambda x, y: 10 * x).save(path("grey.jpg"), quality=95)
    cmyk = filled("CMYK", lambda x, y: (10 * x, 16 * y, 100, 60))
    cmyk.save(path("cmyk.jpg"), **FINE)

    # PIL inverts the values that it stores; the four stored channels must be Y, Cb, Cr of the inks, and inverted black.
    c, m, y, k = cmyk.split()
    luma, cb, cr = Image.merge("RGB", (c, m, y)).convert("YCbCr").split()
    Image.merge("CMYK", [*map(ImageOps.invert, (luma, cb, cr)), k]).save(path("ycck.jpg"), **FINE)
    data = bytearray(open(path("ycck.jpg"), "rb").read())
    data[data.index(b"Adobe") + 11] = 2  # the transform
    open(path("ycck.jpg"), "wb").write(data)

    palette = Image.new("P", (W, H))
    palette.putpalette([v for i in range(W) for v in (10 * i, 255 - 10 * i, 7)])
    palette.putdata([x for _ in range(H) for x in range(W)])
    palette.save(path("palette.png"))
    deep = Image.new("I;16", (W, H))
    deep.putdata([2560 * x + 255 for _ in range(H) for x in range(W)])
    deep.save(path("grey16.png"))


main()
