#!/usr/bin/env python3
"""Changes single instructions of the compiled kernels, and shows that tests fail.

    tests/ptx/mutants.py [--bin build/bin/ptx] [--ptx build/tests/CMakeFiles/elinvar_ptx_90.dir] [--count 300] [--seed 0]

First each test for `cuda` runs alone and reports the instructions that it reaches. Then `count` reached instructions
are drawn, each changed in one of the ways below. A mutant is killed if one of the tests that reach the instruction
fails or does not end. A mutant that survives is printed; if it computes the same, it belongs into mutants.txt, with the
reason. Exit codes: 0 if at least 95 % are killed or listed, 1 if fewer, 2 for a wrong call.
"""
import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

PROGRAMS = {  # as in CMakeLists.txt
    "op_tests": ("*.cuda", {"ELINVAR_PTX_RACES": "on", "ELINVAR_DEVICE_CACHE": "off"}),
    "tensor_tests": ("*/cuda:*/cuda/*:*/cuda_*:Device.*",
                     {"ELINVAR_PTX_MULTIPROCESSORS": "1", "ELINVAR_PTX_ORDER": "backwards"}),
    "nn_tests": ("*/cuda:*/cuda/*:*/cuda_*", {"ELINVAR_PTX_ORDER": "backwards"}),
    "models_tests": ("*/cuda:*/cuda/*:*/cuda_*-*GptRecomputed", {}),
}
MOST_TESTS = 12  # that try to kill a mutant, the shortest first
LIMIT = 60  # seconds for a test; the longest takes a few


# --- Ways to change an instruction. Each returns the changed text, or None if it does not apply.

def unfused(text):
    m = re.match(r"(@\S+ )?fma\.rn\.(f32|f64) (\S+), (\S+), (\S+), (\S+)$", text)
    if not m:
        return None
    guard, kind, to, a, b, c = m.group(1) or "", *m.groups()[1:]
    return f"{guard}mul.rn.{kind} %mutant_{kind}, {a}, {b}; {guard}add.rn.{kind} {to}, %mutant_{kind}, {c}"


def neighbour(text):
    m = re.match(r"(?:@\S+ )?(?:ld|st)\.(?:global|shared)\S*?\.(?:v2\.|v4\.)?[a-z](8|16|32|64) .*?(\[[^\]]*\])", text)
    if not m:
        return None
    size = int(m.group(1)) // 8 * (4 if ".v4." in text else 2 if ".v2." in text else 1)
    address = m.group(2)
    place = re.match(r"\[([^+\]]+)(?:\+(-?\d+))?\]", address)
    return text.replace(address, f"[{place.group(1)}+{int(place.group(2) or 0) + size}]")


def last_bit(text):
    found = list(re.finditer(r"0[fd]([0-9A-F]{8,16})", text))
    if not found:
        return None
    m = found[-1]
    bits = int(m.group(1), 16) ^ 1
    return text[:m.start(1)] + f"{bits:0{len(m.group(1))}X}" + text[m.end(1):]


def edge(text):
    swap = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq",
            "ltu": "leu", "leu": "ltu", "gtu": "geu", "geu": "gtu", "equ": "neu", "neu": "equ"}
    m = re.search(r"\bsetp\.([a-z]+)\.", text)
    if not m or m.group(1) not in swap:
        return None
    return text[:m.start(1)] + swap[m.group(1)] + text[m.end(1):]


def without_barrier(text):
    return "mov.u32 %mutant_b32, 0" if re.match(r"(bar\.sync|barrier\.sync)", text) else None


def other_lane(text):
    m = re.match(r"(shfl\.sync\.(?:bfly|down|up|idx)\.b32 \S+, \S+, )(\d+)(, .*)$", text)
    return f"{m.group(1)}{int(m.group(2)) ^ 1}{m.group(3)}" if m else None


def off_by_one(text):
    m = re.match(r"((?:@\S+ )?(?:add|sub|mad\.lo|shl|shr)\.\S+ .*, )(-?\d+)$", text)
    return f"{m.group(1)}{int(m.group(2)) + 1}" if m else None


def other_operation(text):
    swap = {"add": "sub", "sub": "add", "min": "max", "max": "min"}
    m = re.match(r"(?:@\S+ )?(add|sub|min|max)\.(?:rn\.|ftz\.)*(?:f32|f64|NaN\.f32) ", text)
    return text[:m.start(1)] + swap[m.group(1)] + text[m.end(1):] if m else None


WAYS = [unfused, neighbour, last_bit, edge, without_barrier, other_lane, off_by_one, other_operation]
REGISTERS = ".reg .f32 %mutant_f32; .reg .f64 %mutant_f64; .reg .b32 %mutant_b32; "


# --- PTX texts.

class Function:
    """Instructions of a function: (begin, end) in the text of the file, in the order of its digits in a reach file."""

    def __init__(self, text, begin, end):
        self.begin, self.places = begin, []
        at = begin
        while at < end:
            if text[at] in " \t\r\n{}":
                at += 1
                continue
            stop = text.index(":" if text[at] == "$" else ";", at)
            if text[at] not in "$.":
                self.places.append((at, stop))
            at = stop + 1


def plain_name(mangled):
    """The name as reach files have it (name_without_build in text.cpp)."""
    out, at = "", 0
    while at < len(mangled):
        m = re.match(r"(\d+)_GLOBAL__N__", mangled[at:])
        if m:
            begin = at + len(m.group(1))
            unnamed = mangled[begin:begin + int(m.group(1))][len("_GLOBAL__N__"):]
            out += "<" + unnamed.split("_", 2)[2].split("_cu_")[0] + ">"
            at = begin + int(m.group(1))
        else:
            m = re.match(r"\d+|.", mangled[at:])
            out += m.group(0)
            at += m.end()
    return out


def functions_of(text):
    """{name: Function} of a PTX file whose comments are blanked out."""
    found = {}
    for m in re.finditer(r"\.(?:entry|func)\b[^;{]*?(\w+)\s*\([^;{]*\{", text):
        depth, end = 1, m.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        names = re.findall(r"(_Z\w+)\s*\(", m.group(0))
        if names:
            found[plain_name(names[0])] = Function(text, m.end(), end - 1)
    return found


# --- Tests.

def run(program, test, environment, limit=LIMIT):
    """Returns whether the test passes."""
    try:
        return subprocess.run([program, f"--gtest_filter={test}", "--gtest_brief=1"], env={**os.environ, **environment},
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=limit).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def tests_of(program, pattern):
    listed = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={pattern}"], capture_output=True, text=True,
                            check=True).stdout
    suite, tests = "", []
    for line in listed.splitlines():
        line = line.split("#")[0].rstrip()
        if line.endswith(".") and not line.startswith(" "):
            suite = line
        elif line.startswith("  "):
            tests.append(suite + line.strip())
    return tests


def reached_by(bin_folder, jobs):
    """[(seconds, program, test, environment, {function: digits})], the shortest tests first."""
    todo = [(name, test, environment) for name, (pattern, environment) in PROGRAMS.items()
            for test in tests_of(bin_folder / name, pattern)]

    def measure(one):
        name, test, environment = one
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            passed = run(bin_folder / name, test, {**environment, "ELINVAR_PTX_REACH": folder}, limit=600)
            seconds = time.monotonic() - began
            reach = {}
            for file in pathlib.Path(folder).iterdir():
                for line in file.read_text().splitlines():
                    file_name, function, digits = line.split(" ")
                    reach[file_name, function] = digits
        if not passed:
            sys.exit(f"mutants: {name} {test} fails without a mutant")
        return seconds, name, test, environment, reach

    with ThreadPoolExecutor(jobs) as pool:
        return sorted(pool.map(measure, todo), key=lambda t: t[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin/ptx"))
    parser.add_argument("--ptx", type=pathlib.Path, default=pathlib.Path("build/tests/CMakeFiles/elinvar_ptx_90.dir"))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    texts = {p.stem: re.sub(r"//[^\n]*", lambda m: " " * len(m.group(0)), p.read_text())
             for p in options.ptx.rglob("*.ptx")}
    if not texts or not (options.bin / "op_tests").exists():
        print(f"mutants: no .ptx in {options.ptx}, or no op_tests in {options.bin}: build first", file=sys.stderr)
        return 2
    functions = {file: functions_of(text) for file, text in texts.items()}
    tests = reached_by(options.bin, options.jobs)
    print(f"{len(tests)} tests, {sum(t[0] for t in tests):.0f} s", flush=True)

    # Each way gets an equal share of the mutants, as far as it applies.
    candidates = {way: [] for way in WAYS}
    seen = {}
    for _, _, _, _, reach in tests:
        for (file, name), digits in reach.items():
            known = seen.setdefault((file, name), bytearray(len(digits)))
            for i, digit in enumerate(digits):
                known[i] |= digit == "1"
    for (file, name), known in sorted(seen.items()):
        function = functions[file].get(name)
        if function is None or len(function.places) != len(known):
            continue
        for i, (begin, end) in enumerate(function.places):
            text = " ".join(texts[file][begin:end].split())
            for way in WAYS:
                if known[i] and way(text) is not None:
                    candidates[way].append((file, name, i))
    draw = random.Random(options.seed)
    mutants = []
    for k, way in enumerate(sorted(WAYS, key=lambda w: len(candidates[w]))):
        share = (options.count - len(mutants)) // (len(WAYS) - k)
        mutants += [(way, *place) for place in draw.sample(candidates[way], min(share, len(candidates[way])))]
    draw.shuffle(mutants)

    def try_to_kill(mutant):
        way, file, name, i = mutant
        function, text = functions[file][name], texts[file]
        begin, end = function.places[i]
        before = " ".join(text[begin:end].split())
        after = way(before)
        changed = (text[:function.begin] + REGISTERS + text[function.begin:begin] + after + text[end:])
        able = [t for t in tests if t[4].get((file, name), "0" * (i + 1))[i:i + 1] == "1"][:MOST_TESTS]
        with tempfile.TemporaryDirectory() as folder:
            for other in options.ptx.rglob("*.ptx"):
                if other.stem != file:
                    os.symlink(other.resolve(), pathlib.Path(folder) / other.name)
            (pathlib.Path(folder) / f"{file}.ptx").write_text(changed)
            for _, program, test, environment, _ in able:
                if not run(options.bin / program, test, {**environment, "ELINVAR_PTX_FOLDER": folder}):
                    return mutant, before, after, True
        return mutant, before, after, False

    listed = pathlib.Path(__file__).with_name("mutants.txt")
    reasons = listed.read_text() if listed.exists() else ""
    killed, known_equal, survivors = 0, 0, []
    by_way = {way: [0, 0] for way in WAYS}
    with ThreadPoolExecutor(options.jobs) as pool:
        for (way, file, name, i), before, after, dead in pool.map(try_to_kill, mutants):
            line = f"{way.__name__} {file} {name} {i}"
            by_way[way][0] += dead
            by_way[way][1] += 1
            killed += dead
            if not dead and line in reasons:
                known_equal += 1
            elif not dead:
                survivors.append(line)
                print(f"survives: {line}: {before}  ->  {after}", flush=True)
    for way, (dead, count) in by_way.items():
        print(f"{way.__name__:16} {dead:4} of {count:4} killed")
    total = len(mutants)
    share = (killed + known_equal) / max(total, 1)
    print(f"{killed} of {total} killed, {known_equal} equivalent, {len(survivors)} survive ({100 * share:.1f} %)")
    return 0 if share >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
