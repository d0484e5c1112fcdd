#!/usr/bin/env python3
"""Holds what ptxas makes of the kernels to registers.sm_90.txt and its like: registers, spills, shared memory, occupancy.

    tests/ptx/ptxas.py [--build build] [--ptxas PROGRAM] [--write] [--compile sm_80,sm_100]

The build keeps what ptxas reports while it compiles the kernels. More spills than the table has are a failure, and so is
any spill of products of matrices, convolutions and attention for sm_90(a); with the ptxas of the table, so is any other
difference. Of another ptxas, differences of registers are counted only. --write rewrites the tables of the architectures
that the build has. An architecture without a table is named and not compared. --compile takes other architectures than
the build's, for which it compiles the kernels, which takes minutes.
Exit codes: 0 as in the table, 1 not, 2 a wrong call."""
import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from ptx_text import plain_name

REWRITE = "tests/ptx/ptxas.py --write"
HEAD = """# Registers, spill stores and loads (bytes), static shared memory (bytes), threads of a block, warps of a
# multiprocessor, file, kernel."""
NEVER = re.compile("matmul |conv2d .*(product_tiles|exact_(tiles|warpgroups))|attention |attention_fast")  # file and kernel
UNBOUNDED = 256  # threads of the launches of kernels without __launch_bounds__
# Bytes of shared memory and blocks of a multiprocessor (CUDA C++ programming guide, compute capabilities). All have
# 65536 registers, given to warps in units of 256, and 64 warps; a block takes 1 KiB of shared memory beside its own.
MULTIPROCESSORS = {"sm_80": (164 << 10, 32), "sm_90": (228 << 10, 32), "sm_90a": (228 << 10, 32),
                   "sm_100": (228 << 10, 32)}


def occupancy(target, registers, shared, threads):
    """Warps of a multiprocessor that registers and static shared memory allow."""
    memory, most = MULTIPROCESSORS[target]
    warps = -(-threads // 32)
    by_registers = 65536 // (-(-registers * 32 // 256) * 256) // warps
    return warps * min(most, 64 // warps, by_registers, memory // (shared + 1024))


def bounds_of(text):
    """{kernel: threads of a block} of those that declare it."""
    found = {}
    for m in re.finditer(r"\.entry\s+(\w+)\s*\([^)]*\)\s*((?:\.\w+[^\n{]*\s*)*)\{", re.sub(r"//[^\n]*", "", text)):
        bound = re.search(r"\.maxntid (\d+)(?:, (\d+), (\d+))?", m.group(2))
        if bound:
            found[m.group(1)] = int(bound.group(1)) * int(bound.group(2) or 1) * int(bound.group(3) or 1)
    return found


def measured(reports, bounds):
    """{target: {(file, kernel): (registers, stores, loads, shared, threads, warps)}}, of {file: report of ptxas -v}."""
    targets = {}
    for file, report in reports.items():
        for entry in report.split("Compiling entry function '")[1:]:
            kernel, target = re.match(r"(\w+)' for '(\w+)'", entry).groups()
            spilled = re.search(f"properties for {kernel}" + r"\s+.*, (\d+) bytes spill stores, (\d+) bytes", entry)
            registers = int(re.search(r"Used (\d+) registers", entry).group(1))
            shared = int((re.search(r"(\d+) bytes smem", entry) or [0, 0])[1])
            name = plain_name(kernel)
            threads = bounds.get((file, name), UNBOUNDED)
            targets.setdefault(target, {})[file, name] = (registers, *map(int, spilled.groups()), shared, threads,
                                                          occupancy(target, registers, shared, threads))
    return targets


def bounds_of_build(build):
    """{(file, kernel): threads of a block}, which are the same for every architecture."""
    found = {}
    for path in build.glob("tests/CMakeFiles/elinvar_ptx_*.dir/**/*.ptx"):
        found.update({(path.stem, plain_name(kernel)): threads
                      for kernel, threads in bounds_of(path.read_text()).items()})
    return found


def reports_of_build(build):
    folder = build / "tensor/CMakeFiles/elinvar_tensor.dir/ops"
    return {path.name.split(".")[0]: path.read_text() for path in sorted(folder.glob("*.cu.o.ptxas"))}


def reports_for(target, build):
    """Reports of the kernels, compiled for another architecture by the commands of the build."""
    def compiled(entry):
        command = [word for word in shlex.split(entry["command"]) if not word.startswith("--generate-code")]
        command[command.index("-o") + 1] = os.devnull
        command[command.index("-c")] = "-cubin"
        run = subprocess.run([*command, f"-arch={target}", "-Xptxas=-v"], cwd=entry["directory"], text=True,
                             capture_output=True)
        if run.returncode:
            raise SystemExit(f"{run.stderr}ptxas.py: {entry['file']} does not compile for {target}")
        return pathlib.Path(entry["file"]).stem, run.stderr

    entries = [entry for entry in json.loads((build / "compile_commands.json").read_text())
               if "elinvar_tensor.dir/ops/" in entry["command"] and entry["file"].endswith(".cu")]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(compiled, entries))


def text_of_table(version, rows):
    lines = [f"# ptxas {version}. {REWRITE} rewrites this file.", HEAD]
    for (file, kernel), numbers in sorted(rows.items()):
        lines.append("{:3} {:4} {:4} {:6} {:4} {:2}".format(*numbers) + f" {file} {kernel}")
    return "\n".join(lines) + "\n"


def read_table(path):
    version, rows = "", {}
    for line in path.read_text().splitlines():
        if line.startswith("# ptxas "):
            version = line.split()[2].rstrip(".")
        elif not line.startswith("#"):
            *numbers, file, kernel = line.split()
            rows[file, kernel] = tuple(map(int, numbers))
    return version, rows


def differences(table_version, table, version, rows, target="sm_90"):
    """What is wrong, line by line."""
    wrong, changed = [], 0
    for key in sorted(table.keys() | rows.keys()):
        name = " ".join(key)
        if key not in rows or key not in table:
            wrong.append(f"{name}: " + ("no such kernel" if key not in rows else "not in the table"))
            continue
        was, now = table[key], rows[key]
        if now[1] > was[1] or now[2] > was[2]:
            wrong.append(f"{name}: spills {now[1]} and {now[2]} bytes, in the table {was[1]} and {was[2]}")
        elif now != was:
            changed += 1
            if version == table_version:
                wrong.append(f"{name}: {now}, in the table {was}")
    wrong += [f"{' '.join(key)}: spills, which costs the products their speed" for key, now in sorted(rows.items())
              if target in ("sm_90", "sm_90a") and NEVER.match(" ".join(key)) and (now[1] or now[2])]
    return wrong, changed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ptxas", default="ptxas", help="the program, for its version")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--compile", default="", metavar="sm_80,..")
    options = parser.parse_args()
    others = [target for target in options.compile.split(",") if target]
    unknown = [target for target in others if target not in MULTIPROCESSORS]
    if unknown:
        print(f"ptxas.py: {unknown[0]} is none of {', '.join(MULTIPROCESSORS)}", file=sys.stderr)
        return 2
    reports = [reports_of_build(options.build)]
    if not reports[0]:
        print(f"ptxas.py: {options.build} has no reports of ptxas: build elinvar_tensor with tests first", file=sys.stderr)
        return 2
    version = re.search(r"V(\d[\d.]*)", subprocess.run([options.ptxas, "--version"], text=True, check=True,
                                                       stdout=subprocess.PIPE).stdout).group(1)
    bounds = bounds_of_build(options.build)
    found = {}
    for report in [*reports, *(reports_for(target, options.build) for target in others)]:
        found.update(measured(report, bounds))
    failed = False
    for target, rows in found.items():
        path = pathlib.Path(__file__).with_name(f"registers.{target}.txt")
        if not (path.exists() or options.write):
            print(f"{target}: no table, not compared")
            continue
        if options.write:
            path.write_text(text_of_table(version, rows))
        table_version, table = read_table(path)
        wrong, changed = differences(table_version, table, version, rows, target)
        spilled = sum(row[1] + row[2] > 0 for row in rows.values())
        print(f"{target}: {len(rows)} kernels by ptxas {version}, of which {spilled} spill")
        if version != table_version:
            print(f"  the table is of ptxas {table_version}: only spills are compared; {changed} kernels differ beside")
        print("".join(f"  {line}\n" for line in wrong), end="")
        failed = failed or bool(wrong)
    if failed:
        print(f"If that is what you want, rewrite the tables: {REWRITE}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
