#!/usr/bin/env python3
"""Writes unicode_classes.inc: the code points that are letters, numbers and white space in Unicode 16.0.

usage: make_unicode_classes.py > unicode_classes.inc        (needs the package `tokenizers`, tried with 0.23)

They are asked of the regular expressions of a reference tokenizer, class by class and code point by code point. The
version is fixed, by the counts below: how a text falls into tokens must not depend on what is installed where it is
read."""
from tokenizers import Regex, pre_tokenizers

CLASSES = {"kLetters": (r"\p{L}", 141028), "kNumbers": (r"\p{N}", 1911), "kSpaces": (r"\s", 25)}
BLOCK = 4096


def points_of(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    for start in range(0, 0x110000, BLOCK):
        points = [p for p in range(start, start + BLOCK) if not 0xD800 <= p <= 0xDFFF]
        text = "".join("\x01" + chr(p) for p in points)  # so that each stands alone
        for _, (begin, end) in split.pre_tokenize_str(text) if text else []:
            if end == begin + 1 and begin % 2 == 1:
                yield points[begin // 2]


def ranges(points):
    result = []
    for p in points:
        if result and result[-1][1] == p - 1:
            result[-1][1] = p
        else:
            result.append([p, p])
    return result


print("// Written by make_unicode_classes.py: Unicode 16.0.")
for name, (pattern, count) in CLASSES.items():
    points = sorted(points_of(pattern))
    assert len(points) == count, f"{len(points)} code points match {pattern}, expected {count}: another Unicode version"
    print(f"constexpr Range {name}[] = {{")
    line = "   "
    for first, last in ranges(points):
        entry = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line + entry) > 120:
            print(line)
            line = "   "
        line += entry
    print(line + "\n};")
