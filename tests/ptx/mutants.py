#!/usr/bin/env python3
"""Changes single instructions of the compiled kernels, and shows that tests fail.

    tests/ptx/mutants.py [--bin build/bin/ptx] [--count 300] [--seed 0] [--results build/mutants.jsonl]

First each test for `cuda` runs alone and reports the instructions that it reaches. Then `count` reached instructions
are drawn, each changed in one of the ways of mutations.py. A mutant is killed if a test that reaches the instruction
fails or does not end; tests that killed a mutant of the same kernel are tried first, then the shortest. A mutant that
survives all of them is printed, unless equivalent.txt has the reason why it computes the same. The results file keeps
what was found, so that a run can go on: mutants killed earlier are not tried again, and survivors only by tests that
are new (all, with --again). What tests reach is kept beside it until programs change. Exit codes: 0 if at least 95 %
are killed or listed, 1 if fewer, 2 for a wrong call.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from equivalent import Listed, chooses_division
from mutations import WAYS
from ptx_text import functions_of

ON_CUDA, EDGES, SLICES = "*/cuda:*/cuda/*:*/cuda_*", "GpuEdges.*", "ExactSlices.*:GpuSlices.*"
LARGE = "DeviceFunctions.*:GpuProducts.*:Graphs.*"
SMALL_GPU = {"ELINVAR_PTX_MULTIPROCESSORS": "1", "ELINVAR_PTX_ORDER": "backwards", "ELINVAR_PTX_DIVISION": "both",
             "ELINVAR_DEVICE_CACHE": "off"}
RACES = {"ELINVAR_PTX_RACES": "on"}
PROGRAMS = [  # as in CMakeLists.txt
    ("op_tests", "*.cuda", {**RACES, "ELINVAR_DEVICE_CACHE": "off", "ELINVAR_PTX_DIVISION": "both"}),
    ("tensor_tests", f"{ON_CUDA}-{LARGE}:{EDGES}:{SLICES}", {**SMALL_GPU, **RACES}),
    ("tensor_tests", f"{LARGE}-*/emulated", SMALL_GPU),
    ("tensor_tests", f"{EDGES}:GpuSlices.*-*/emulated", {"ELINVAR_PTX_MULTIPROCESSORS": "1", "ELINVAR_DEVICE_CACHE": "off"}),
    *[("tensor_tests", f"{SLICES}-*/emulated",
       {"ELINVAR_PTX_MULTIPROCESSORS": count, "ELINVAR_DEVICE_CACHE": "off", **RACES}) for count in ("3", "132")],
    ("nn_tests", ON_CUDA, {"ELINVAR_PTX_ORDER": "backwards", "ELINVAR_PTX_DIVISION": "both"}),
    ("models_tests", f"{ON_CUDA}-*GptRecomputed", {}),
]


class Test:
    def __init__(self, program, name, environment):
        self.program, self.filter, self.environment = program, name, environment
        count = environment.get("ELINVAR_PTX_MULTIPROCESSORS", "1")
        self.name = name if count == "1" else f"{name} of {count}"
        self.seconds, self.reach = 0.0, {}

    def run(self, changes, limit):
        """Returns whether the test passes, and what it printed."""
        call = [self.program, f"--gtest_filter={self.filter}", "--gtest_brief=1", "--gtest_throw_on_failure"]
        try:
            done = subprocess.run(call, env={**os.environ, **self.environment, **changes}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)
            return done.returncode == 0, done.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired:
            return False, "does not end"

    def measure(self):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            passed, output = self.run({"ELINVAR_PTX_REACH": folder}, limit=600)
            self.seconds = time.monotonic() - began
            for file in pathlib.Path(folder).iterdir():
                for line in file.read_text().splitlines():
                    file_name, function, digits = line.split(" ")
                    self.reach[file_name, function] = digits
        if not passed:
            sys.exit(f"mutants: {self.program} {self.name} fails without a mutant:\n{output}")

    def reaches(self, mutant):
        return self.reach.get((mutant.file, mutant.function), "")[mutant.number:mutant.number + 1] == "1"


class Mutant:
    def __init__(self, way, file, function, number, before):
        self.way, self.file, self.function, self.number, self.before = way, file, function, number, before
        self.after = WAYS[way](before)

    def key(self):
        return f"{self.way} {self.file} {self.function} {self.number}: {self.before} -> {self.after}"

    def variable(self):
        return {"ELINVAR_PTX_MUTANT": f"{self.file} {self.function} {self.number} {self.after};"}


class Results:
    """{"mutant": key, "killer": test or null, "tried": [tests]} per line; the last one of a mutant counts."""

    def __init__(self, path, again):
        self.path, self.lock, self.all, self.killers = path, threading.Lock(), {}, {}
        for line in path.read_text().splitlines() if path.exists() else []:
            found = json.loads(line)
            self.all[found["mutant"]] = found
        if again:
            self.all = {key: found for key, found in self.all.items() if found["killer"]}

    def add(self, mutant, killer, tried):
        found = {"mutant": mutant.key(), "killer": killer, "tried": tried}
        with self.lock:
            self.all[mutant.key()] = found
            self.killers.setdefault(mutant.function, []).append(killer)
            with self.path.open("a") as out:
                out.write(json.dumps(found) + "\n")


def tests_of(bin_folder):
    tests = []
    for program, pattern, environment in PROGRAMS:
        listed = subprocess.run([bin_folder / program, "--gtest_list_tests", f"--gtest_filter={pattern}"],
                                capture_output=True, text=True, check=True).stdout
        suite = ""
        for line in listed.splitlines():
            line = line.split("#")[0].rstrip()
            if line.endswith(".") and not line.startswith(" "):
                suite = line
            elif line.startswith("  "):
                tests.append(Test(bin_folder / program, suite + line.strip(), environment))
    return tests


def measured(tests, kept, pool):
    """Measures what each test reaches, or reads it from the file `kept` if that is newer than the programs."""
    programs = {test.program for test in tests}
    if kept.exists() and all(kept.stat().st_mtime > program.stat().st_mtime for program in programs):
        known = {(program, name): (seconds, {tuple(key.split(" ")): digits for key, digits in reach.items()})
                 for program, name, seconds, reach in json.loads(kept.read_text())}
        for test in tests:
            test.seconds, test.reach = known[test.program.name, test.name]
        return
    list(pool.map(Test.measure, tests))
    kept.write_text(json.dumps([(test.program.name, test.name, test.seconds,
                                 {" ".join(key): digits for key, digits in test.reach.items()}) for test in tests]))


def draw(tests, functions, count, seed):
    """Draws mutants; each way gets an equal share, as far as it applies."""
    reached = {}
    for test in tests:
        for key, digits in test.reach.items():
            known = reached.setdefault(key, bytearray(len(digits)))
            for i, digit in enumerate(digits):
                known[i] |= digit == "1"
    candidates = {way: [] for way in WAYS}
    for (file, name), known in sorted(reached.items()):
        function = functions[file].get(name)
        if function is None or len(function.instructions) != len(known):
            sys.exit(f"mutants: {file} has no {name} with {len(known)} instructions")
        for i, text in enumerate(function.instructions):
            if not known[i] or chooses_division(function.instructions, i):
                continue
            for way, change in WAYS.items():
                if change(text) is not None:
                    candidates[way].append((file, name, i, text))
    dice = random.Random(seed)
    mutants = []
    for k, way in enumerate(sorted(WAYS, key=lambda w: len(candidates[w]))):
        share = (count - len(mutants)) // (len(WAYS) - k)
        mutants += [Mutant(way, *place) for place in dice.sample(candidates[way], min(share, len(candidates[way])))]
    dice.shuffle(mutants)
    return mutants


def try_to_kill(mutant, tests, results):
    """Returns the name of a test that fails, or None."""
    earlier = results.all.get(mutant.key(), {"killer": None, "tried": []})
    if earlier["killer"]:
        return earlier["killer"]
    tried = list(earlier["tried"])
    able = [t for t in tests if t.name not in tried and t.reaches(mutant)]
    deadly = results.killers.get(mutant.function, [])
    for test in sorted(able, key=lambda t: (-deadly.count(t.name), t.seconds)):
        passed, output = test.run(mutant.variable(), limit=5 + 20 * test.seconds)
        if "unknown" in output and ".ptx:" in output:
            sys.exit(f"mutants: not PTX: {mutant.key()}\n{output}")
        tried.append(test.name)
        if not passed:
            results.add(mutant, test.name, tried)
            return test.name
    results.add(mutant, None, tried)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/bin/ptx"))
    parser.add_argument("--ptx", type=pathlib.Path, default=pathlib.Path("build/tests/CMakeFiles/elinvar_ptx_90.dir"))
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("build/mutants.jsonl"))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    functions = {path.stem: functions_of(path) for path in options.ptx.rglob("*.ptx")}
    if not functions or not (options.bin / "op_tests").exists():
        print(f"mutants: no .ptx in {options.ptx}, or no op_tests in {options.bin}: build first", file=sys.stderr)
        return 2
    began = time.monotonic()
    tests = tests_of(options.bin)
    with ThreadPoolExecutor(options.jobs) as pool:
        measured(tests, options.results.with_suffix(".reach"), pool)
        print(f"{len(tests)} tests, measured in {time.monotonic() - began:.0f} s", flush=True)
        mutants = draw(tests, functions, options.count, options.seed)
        results, listed = Results(options.results, options.again), Listed(functions)
        table = {way: dict(drawn=0, killed=0, equivalent=0, surviving=0) for way in WAYS}
        for mutant, killer in zip(mutants, pool.map(lambda m: try_to_kill(m, tests, results), mutants)):
            fate = "killed" if killer else "equivalent" if listed.reason(mutant) else "surviving"
            table[mutant.way]["drawn"] += 1
            table[mutant.way][fate] += 1
            if fate == "surviving":
                print(f"survives: {mutant.key()}", flush=True)
    total = {fate: sum(row[fate] for row in table.values()) for fate in ["drawn", "killed", "equivalent", "surviving"]}
    print(f"{'':16}" + "".join(f"{fate:>12}" for fate in total))
    for way, row in {**table, "all": total}.items():
        print(f"{way:16}" + "".join(f"{row[fate]:12}" for fate in total))
    print(f"{time.monotonic() - began:.0f} s")
    return 0 if total["surviving"] <= 0.05 * total["drawn"] else 1


if __name__ == "__main__":
    sys.exit(main())
