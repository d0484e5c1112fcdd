#!/usr/bin/env python3
"""A static model of the loops over k in which products spend their time: counts their instructions in the PTX, predicts
the share of the FFMA peak on a card, or the rate of exact products on tensor cores, and names what bounds it. Prints the
tables of tensor/GPU.md.

    tests/ptx/inner_loops.py [--ptx build/tests/CMakeFiles/elinvar_ptx_90.dir] [--check tensor/GPU.md]

--check compares the tables with those in the document instead, and the predictions with those that gpu-check prints as
targets. Exit codes: 0 equal or printed, 1 different, 2 a wrong
call."""
import argparse
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from gpu_check.questions import PREDICTED  # noqa: E402

# Published figures (NVIDIA's data sheets and H100 white paper), except for the L2 cache's rate, which NVIDIA does not
# publish: 5.5 TB/s is what microbenchmarks of others measure on an H100.
CARDS = {"H100 SXM": {"multiprocessors": 132, "clock": 1.98e9, "memory": 3.35e12, "l2": 5.5e12},
         "H200": {"multiprocessors": 132, "clock": 1.98e9, "memory": 4.8e12, "l2": 5.5e12}}
ISSUE = 4  # warp instructions that a multiprocessor issues per clock, each to its own 32 lanes for float32
SHARED = 128  # bytes of shared memory per clock and multiprocessor
DEPTH = 8  # kDepth of tensor/cuda/operand.h

# By the chains of a thread, the share of different chunks of 16 bytes among those that a warp's threads read. With 8 x 8
# chains, 4 x 8 threads issue 32 + 32 and read 4 + 8 (ThreadTile). With 8 x 4, 2 x 16 threads issue 2 * 32 + 32 and read
# 2 of either half of their rows and 16 of columns (AttentionThread).
DIFFERENT = {64: (4 + 8) / 64, 32: (2 * 2 + 16) / 96}

# Label: (file, part of the mangled name, side of the square tile, chains of a thread).
PRODUCTS = {"matmul": ("matmul", "product_tiles.*Lb1ELb0E.*Li128ELi128ELi4E", 128, 64),
            "matmul, a transposed": ("matmul", "product_tiles.*Lb0ELb0E.*Li128ELi128ELi4E", 128, 64),
            "matmul, b transposed": ("matmul", "product_tiles.*Lb1ELb1E.*Li128ELi128ELi4E", 128, 64),
            "convolution, forward": ("conv2d", "product_tiles.*Forward.*Li128ELi128ELi4E", 128, 64),
            "convolution, gradient of the input": ("conv2d", "product_tiles.*GradInput.*Li128ELi128ELi4E", 128, 64),
            "convolution, gradient of the filter": ("conv2d", "product_tiles.*GradFilter.*Li128ELi128ELi4E", 128, 64),
            "attention, forward": ("attention", "forward_tiles.*Li4EEEv", 64, 32),
            "attention, gradient of queries": ("attention", "query_gradients.*Li4EEEv", 64, 32),
            "attention, gradient of keys": ("attention", "key_gradients.*Li4EEEv", 64, 32)}

# Exact products (tensor/cuda/exact_product.h). A loop takes PAIRS pairs, and four products of bytes make one of numbers
# of 14 bits. NVIDIA's peak is that of `wgmma`; of it `mma` reaches 62.9 % on average on Hopper, in the measurements of
# Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking" (arXiv 2402.13499).
PAIRS = 16  # kPairSteps of tensor/cuda/pair_tiles.h
INT8_PEAK = 1979e12  # of H100 SXM and H200, without sparsity
INT8_PER_CLOCK = 4096  # products and sums of a multiprocessor: those of an mma.m16n8k32
OF_MMA = 0.63
EXACT = {"exact matmul": ("matmul", "exact_tiles.*MatricesILb1ELb1Ej.*ELi128ELi4E", 128),
         "exact matmul, gradient of the input": ("matmul", "exact_tiles.*MatricesILb1ELb0Ej.*ELi128ELi4E", 128),
         "exact matmul, gradient of the weight": ("matmul", "exact_tiles.*MatricesILb0ELb0Ej.*ELi128ELi4E", 128),
         "exact convolution, forward": ("conv2d", "exact_tiles.*ForwardIjEELi128ELi4E", 128),
         "exact convolution, gradient of the input": ("conv2d", "exact_tiles.*GradInputIjEELi128ELi4E", 128),
         "exact convolution, gradient of the filter": ("conv2d", "exact_tiles.*GradFilterIjEELi128ELi4E", 128),
         "exact matmul, tiles of 64": ("matmul", "exact_tiles.*MatricesILb1ELb1Ej.*ELi64ELi4E", 64)}


class Loop:
    """Counts of the instructions that a warp issues in a run through a loop."""

    def __init__(self, items):
        self.ffma = self.lds = self.sts = self.ldg = self.mma = self.copies = self.other = 0
        self.loaded = self.stored = self.global_bytes = 0  # bytes of a thread, the first two of shared memory
        for opcode in filter(None, map(opcode_of, without_rare(items))):
            width = 4 * int((re.search(r"\.v([24])\.", opcode) or [0, 1])[1])
            if opcode.startswith("fma.rn.f32"):
                self.ffma += 1
            elif opcode.startswith("ld.shared"):
                self.lds, self.loaded = self.lds + 1, self.loaded + width
            elif opcode.startswith("st.shared"):
                self.sts, self.stored = self.sts + 1, self.stored + width
            elif opcode.startswith("ld.global"):
                self.ldg, self.global_bytes = self.ldg + 1, self.global_bytes + width
            elif opcode.startswith("mma.sync"):
                self.mma += 1
            elif opcode.startswith("cp.async.c"):
                width = 16 if opcode.startswith("cp.async.cg") else 4
                self.copies, self.stored, self.global_bytes = (self.copies + 1, self.stored + width,
                                                               self.global_bytes + width)
            else:
                self.other += 1

    def all(self):
        return self.ffma + self.lds + self.sts + self.ldg + self.mma + self.copies + self.other


def opcode_of(item):
    """"" of labels and of what ptxas makes no instruction of: moves, and parameters, which are operands."""
    words = item.split()
    opcode = words[1] if words[0].startswith("@") else words[0]
    return "" if opcode.startswith(("$", ".", "mov.", "ld.param", "cvta", "ret")) else opcode


def without_rare(items):
    """Leaves out blocks that a finished chunk of 512 steps alone enters: those which use a thread's local memory."""
    block, kept = [], []
    for item in [*items, "$end:"]:
        block.append(item)
        if item.startswith("$") or " bra" in " " + item:
            if not any("ld.local" in i or "st.local" in i for i in block):
                kept += block
            block = []
    return kept


def kernels(text):
    """(name, items) of each kernel: labels and instructions in their order."""
    text = re.sub(r"//[^\n]*", "", text).replace("L2::128B", "L2_128B")  # colons are of labels
    for m in re.finditer(r"\.entry\s+(\w+)\s*\([^)]*\)[^{]*\{", text):
        depth, end = 1, m.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield m.group(1), [" ".join(i.split()) for i in re.findall(r"\$\w+:|[^;:{}]+(?:\{[^}]*\}[^;]*)*;",
                                                                     text[m.end():end - 1])]


def loops_of(items):
    """The intervals of the loops: from the target of a branch backwards to the branch."""
    at = {item[:-1]: i for i, item in enumerate(items) if item.startswith("$")}
    found = {}
    for i, item in enumerate(items):
        target = re.search(r"\bbra(?:\.uni)? (\$\w+)", item)
        if target and at[target.group(1)] <= i:
            found[at[target.group(1)]] = i
    return sorted(found.items())


def product_loops(items, opcode, least):
    """Loops over k: the innermost with the multiply-adds of DEPTH steps of a thread's chains, or of PAIRS pairs of a
    warp's part of a tile. Loops within, over taps that a convolution leaves out, are counted as if they ran once."""
    products = [(a, z) for a, z in loops_of(items) if sum(opcode in i for i in items[a:z]) >= least]
    return [(a, z) for a, z in products if not any(a < b and y < z for b, y in products)]


def find(texts, file, part):
    for name, items in kernels(texts[file]):
        if re.search(part, name):
            return items
    raise SystemExit(f"inner_loops.py: no kernel of {file} matches {part}")


def bounds(loop, side, chains, card):
    """Clocks of a multiprocessor for DEPTH steps of a block: of its multiply-adds, and as each resource allows."""
    threads = side * side / chains
    warps = threads / 32
    return {"FFMA": warps * loop.ffma / ISSUE, "issue": warps * loop.all() / ISSUE,
            "shared memory": threads * (loop.loaded * DIFFERENT[chains] + loop.stored) / SHARED,
            "L2": threads * loop.global_bytes * card["multiprocessors"] * card["clock"] / card["l2"]}


def row_of_loop(label, loop, side, chains):
    clocks = bounds(loop, side, chains, CARDS["H200"])
    bound = max((name for name in clocks if name != "FFMA"), key=clocks.get)
    share = clocks["FFMA"] / clocks[bound]
    counts = [loop.ffma, loop.lds, loop.sts, loop.ldg, loop.other]
    shares = [f"{100 * clocks[name] / clocks['FFMA']:.0f} %" for name in ("issue", "shared memory", "L2")]
    return "| " + " | ".join([label, *map(str, counts), *shares, f"{100 * share:.0f} %, {bound}"]) + " |"


def product_of(extent, loop, side, chains, card):
    """(share of the peak, what bounds it) of a product of three equal extents."""
    clocks = bounds(loop, side, chains, card)
    tiles, places = math.ceil(extent / side) ** 2, 2 * card["multiprocessors"]
    waves = tiles / places / math.ceil(tiles / places)
    seconds = {name: c * math.ceil(tiles / places) * 2 * extent / DEPTH / card["clock"] for name, c in clocks.items()}
    seconds["memory"] = 3 * 4 * extent ** 2 / card["memory"]
    bound = max((name for name in seconds if name != "FFMA"), key=seconds.get)
    return waves * seconds["FFMA"] / seconds[bound], bound


def attention_forward(items, side, chains, length=1024, head=64):
    """Share of the peak of causal attention. The keys pass twice, so of three products of tiles two are useful, and the
    diagonal's tiles are computed in full. Beside the products a warp issues the rest of the loops over keys."""
    loops, within = loops_of(items), product_loops(items, "fma.rn.f32", chains * DEPTH)
    issued = 0
    for a, z in loops:
        products = [(b, y) for b, y in within if a < b and y < z]
        if not products:
            continue
        nested = [(b, y) for b, y in loops if a < b and y < z]
        beside = [item for i, item in enumerate(items[a:z + 1], a) if not any(b <= i <= y for b, y in nested)]
        issued += Loop(beside).all() + sum(head // DEPTH * Loop(items[b:y + 1]).all() for b, y in products)
    tiles = length / side
    return 2 * head // DEPTH * chains * DEPTH / issued * (tiles / 2) / ((tiles + 1) / 2)


def exact_bounds(loop, side, card):
    """Clocks of a multiprocessor for PAIRS pairs of a block, as each resource allows, and the clock of NVIDIA's peak."""
    threads, clock = 2 * side, INT8_PEAK / (2 * INT8_PER_CLOCK * card["multiprocessors"])
    warps = threads / 32
    return {"tensor cores": warps * loop.mma * 16 * 8 * 32 / INT8_PER_CLOCK, "issue": warps * loop.all() / ISSUE,
            "shared memory": threads * (loop.loaded + loop.stored) / SHARED,
            "L2": threads * loop.global_bytes * card["multiprocessors"] * clock / card["l2"]}, clock


def exact_rate(loop, side, card, of_peak):
    """(TFLOP/s of products of 14 bits, what bounds them) if tensor cores reach this share of NVIDIA's peak."""
    clocks, clock = exact_bounds(loop, side, card)
    clocks["tensor cores"] /= of_peak
    bound = max(clocks, key=clocks.get)
    return 2 * side * side * 2 * PAIRS * card["multiprocessors"] * clock / clocks[bound] / 1e12, bound


def exact_tables(texts):
    """(lines, TFLOP/s of a product of 4096)"""
    card = CARDS["H200"]
    lines = ["| loop over 16 pairs | MMA | LDS | LDGSTS | others | issue | shared memory | L2 | TFLOP/s at the peak's rate | "
             "at 63 % of it |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for label, (file, part, side) in EXACT.items():
        items = find(texts, file, part)
        found = product_loops(items, "mma.sync", side // 32 * 16)
        if len(found) != 1:
            raise SystemExit(f"inner_loops.py: {label} has {len(found)} loops over k")
        loop = Loop(items[found[0][0]:found[0][1] + 1])
        clocks, _ = exact_bounds(loop, side, card)
        shares = [f"{100 * clocks[name] / clocks['tensor cores']:.0f} %" for name in ("issue", "shared memory", "L2")]
        rates = [f"{rate:.0f}, {bound}" for rate, bound in (exact_rate(loop, side, card, share) for share in (1, OF_MMA))]
        lines.append("| " + " | ".join([label, *map(str, [loop.mma, loop.lds, loop.copies, loop.other]), *shares,
                                        *rates]) + " |")
        if label == "exact matmul":
            tiles = (4096 // side) ** 2
            waves = tiles / card["multiprocessors"] / math.ceil(tiles / card["multiprocessors"])
            large = waves * exact_rate(loop, side, card, OF_MMA)[0]
    return lines, large


def tables(texts):
    """(lines, {name: predicted share of the peak, or TFLOP/s})"""
    lines = ["| loop over eight steps | FFMA | LDS | STS | LDG | others | issue | shared memory | L2 | of the peak |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    loops = {}
    for label, (file, part, side, chains) in PRODUCTS.items():
        items = find(texts, file, part)
        found = product_loops(items, "fma.rn.f32", chains * DEPTH)
        if not found:
            raise SystemExit(f"inner_loops.py: {label} has no loop over k")
        for number, (a, z) in enumerate(found, 1):
            loops[label] = Loop(items[a:z + 1])
            if loops[label].ffma < chains * DEPTH:
                raise SystemExit(f"inner_loops.py: product {number} of {label} keeps its chains in local memory")
            lines.append(row_of_loop(label + (f", product {number}" if len(found) > 1 else ""), loops[label], side,
                                     chains))
    lines += ["", "| prediction | card | share of the FFMA peak | bound |", "| --- | --- | --- | --- |"]
    for card, published in CARDS.items():
        share, bound = product_of(4096, loops["matmul"], *PRODUCTS["matmul"][2:], published)
        lines.append(f"| product of 4096 | {card} | {100 * share:.0f} % | {bound} |")
    file, part, side, chains = PRODUCTS["attention, forward"]
    attention = attention_forward(find(texts, file, part), side, chains)
    lines.append(f"| attention 4x1024x12x64, forward | both | {100 * attention:.0f} % | issue |")
    exact, exact_product = exact_tables(texts)
    lines += ["", *exact]
    return lines, {"matmul": round(share, 2), "attention": round(attention, 2), "exact": round(exact_product)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ptx", type=pathlib.Path, default=pathlib.Path("build/tests/CMakeFiles/elinvar_ptx_90.dir"))
    parser.add_argument("--check", type=pathlib.Path)
    options = parser.parse_args()
    texts = {path.name.split(".")[0]: path.read_text() for path in options.ptx.rglob("*.ptx")}
    if not {file for file, *_ in PRODUCTS.values()} <= texts.keys():
        print(f"inner_loops.py: {options.ptx} lacks the PTX of products: build first", file=sys.stderr)
        return 2
    lines, predicted = tables(texts)
    printed, document = "\n".join(lines), options.check.read_text() if options.check else ""
    if options.check is None:
        print(printed)
        return 0
    wrong = [table for table in printed.split("\n\n") if table not in document]
    if wrong:
        print(f"{options.check} has other tables than tests/ptx/inner_loops.py prints:\n" + printed)
    if predicted != PREDICTED:
        print(f"tools/gpu_check/questions.py expects {PREDICTED}, predicted is {predicted}")
    return 1 if wrong or predicted != PREDICTED else 0


if __name__ == "__main__":
    sys.exit(main())
