#!/usr/bin/env python3
"""Writes the golden files for bpe_test.cpp: tokens of random texts by Hugging Face's `tokenizers`.

usage: make_tokens.py [--gpt2 FOLDER] [--shakespeare FILE]     (needs the package `tokenizers`, tried with 0.23)
       make_tokens.py --gpt2 FOLDER --compare TEXT TOKENS.bin  compares tokens of TEXT by `tokenize encode`

tokenizer.json is a vocabulary learnt from the texts. tokens.json has a digest of the tokens of every thousand texts, for
that vocabulary with each pattern, in files like those of Qwen 2 and LLaMA 3 and, given FOLDER with encoder.json and
vocab.bpe, for GPT-2's own."""
import argparse
import json
import struct
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
TEXTS, BLOCK = 10000, 1000
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")


class Random:
    """xorshift64*, as in the test."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        mask = (1 << 64) - 1
        s = self.state
        s ^= s >> 12
        s = (s ^ s << 25) & mask
        s ^= s >> 27
        self.state = s
        return ((s * 2685821657736338717 & mask) >> 32) % n


ENDINGS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re", "'\u017f", "'"]
SIGNS = "!?.,;:-_()[]{}\"#@/\\<|>"
SPACES = ["\n", "\r", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "\u0085", " \n", "\n "]


def text(random):
    out = []
    for _ in range(1 + random.below(40)):
        kind = random.below(16)
        if kind < 5:
            out += [chr(ord("a") + random.below(26)) for _ in range(1 + random.below(6))]
        elif kind == 5:
            out.append(" " * (1 + random.below(3)))
        elif kind == 6:
            out += [chr(ord("0") + random.below(10)) for _ in range(1 + random.below(5))]
        elif kind == 7:
            out.append(ENDINGS[random.below(len(ENDINGS))])
        elif kind == 8:
            out.append(SIGNS[random.below(len(SIGNS))])
        elif kind == 9:
            out.append(SPACES[random.below(len(SPACES))])
        elif kind == 10:
            out.append(chr(ord("A") + random.below(26)))
        elif kind == 11:
            out.append(chr(0xC0 + random.below(0x180)))
        elif kind == 12:
            out.append(chr(0x370 + random.below(0x900)))
        elif kind == 13:
            out.append(chr(0x4E00 + random.below(0x5000)))
        elif kind == 14:
            out.append(chr(0x1F300 + random.below(0x300)))
        else:
            point = random.below(0x110000)
            out.append(chr(0xFFFD if 0xD800 <= point <= 0xDFFF else point))
    return "".join(out)


def texts():
    random = Random(2026)
    return [text(random) for _ in range(TEXTS)]


def digest(lists):
    """Returns the 64-bit FNV-1a of each text's number of tokens and its tokens, as 32-bit little-endian numbers."""
    h = 0xCBF29CE484222325
    for tokens in lists:
        for number in [len(tokens), *tokens]:
            for byte in struct.pack("<I", number):
                h = (h ^ byte) * 0x100000001B3 & ((1 << 64) - 1)
    return f"{h:016x}"


def digests(tokenizer, samples):
    tokens = [tokenizer.encode(s, add_special_tokens=False).ids for s in samples]
    return [digest(tokens[i : i + BLOCK]) for i in range(0, len(tokens), BLOCK)]


def split_by(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def learnt(samples):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(samples, trainers.BpeTrainer(
        vocab_size=1000, min_frequency=2, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def added(number, name, special=True, normalized=False):
    return {"id": number, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": normalized, "special": special}


def words(first, normalized):
    return [added(first + i, name, False, normalized) for i, name in enumerate(["qz", "qzx", "  "])]


def shapes(tokenizer):
    """Returns files like the published ones, which differ in their contents besides the vocabulary."""
    file = json.loads(tokenizer.to_str())
    end = file["added_tokens"]
    yield "with_words", file | {"added_tokens": end + words(1000, True)}
    tokenizer.pre_tokenizer = split_by(QWEN2)
    file = json.loads(tokenizer.to_str())
    yield "like_qwen2", file | {"normalizer": {"type": "NFC"},
                                "added_tokens": end + [added(1000, "<|im_start|>")] + words(1001, False)}
    tokenizer.pre_tokenizer = split_by(LLAMA3)
    file = json.loads(tokenizer.to_str())
    yield "like_llama3", file | {"model": file["model"] | {"ignore_merges": True},
                                 "added_tokens": [added(1000, "<|begin_of_text|>"), added(1001, "<|end_of_text|>")]}


def gpt2(folder):
    tokens = next(Path(folder).glob("*encoder.json"))
    merges = tokens.parent / tokens.name.replace("encoder.json", "vocab.bpe")
    pairs = [tuple(line.split(" ")) for line in merges.read_text().splitlines() if line and not line.startswith("#version")]
    tokenizer = Tokenizer(models.BPE(vocab=json.loads(tokens.read_text()), merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpt2")
    parser.add_argument("--shakespeare")
    parser.add_argument("--compare", nargs=2)
    options = parser.parse_args()
    if options.compare:
        raw = Path(options.compare[1]).read_bytes()[1024:]
        ours = list(struct.unpack(f"<{len(raw) // 2}H", raw))[1:]
        theirs = gpt2(options.gpt2).encode(Path(options.compare[0]).read_bytes().decode()).ids
        print("equal" if ours == theirs else "different", len(ours), len(theirs))
        return int(ours != theirs)

    samples = texts()
    tokenizer = learnt(samples)
    tokenizer.save(str(HERE / "tokenizer.json"))
    path = HERE / "tokens.json"
    golden = json.loads(path.read_text())  # keeps the parts whose input files are not given
    golden["gpt2"] = digests(tokenizer, samples)
    for name, pattern in [("llama3", LLAMA3), ("qwen2", QWEN2)]:
        tokenizer.pre_tokenizer = split_by(pattern)
        golden[name] = digests(tokenizer, samples)
    for name, file in shapes(learnt(samples)):
        golden[name] = digests(Tokenizer.from_str(json.dumps(file)), samples)
    if options.gpt2:
        golden["gpt2_vocabulary"] = digests(gpt2(options.gpt2), samples)
    if options.gpt2 and options.shakespeare:
        golden["shakespeare"] = digests(gpt2(options.gpt2), [Path(options.shakespeare).read_text()])
    path.write_text(json.dumps(golden, indent=1) + "\n")


raise SystemExit(main())
