#!/usr/bin/env python3
"""Stands in for the programs that gpu-check starts, under their names: answers as they would on a card. STAND_IN_FAULT
chooses what goes wrong."""
import json
import os
import pathlib
import sys
import time

name, words, fault = pathlib.Path(sys.argv[0]).name, sys.argv[1:], os.environ.get("STAND_IN_FAULT", "")


def after(option):
    return words[words.index(option) + 1]


def train():
    if words == ["--version"]:
        print("0.0.0")
    elif words == ["devices"]:
        print("cpu      Some CPU; 2 threads, avx2\n"
              "cuda:0   Some Card; compute capability 9.0, 79.6 GiB, driver for CUDA 13.0, runtime 13.0")
    else:
        network = pathlib.Path(words[1]).stem
        wrong = fault == f"digest of {network}" and after("--device") != "cpu"
        print(f"final step=20 loss=1 digest={'bad' if wrong else 'good'}")


def tests():
    pattern = next(word for word in words if word.startswith("--gtest_filter=")).split("=", 1)[1]
    if "--gtest_list_tests" in words:
        print("suite.\n" + "".join(f"  case{i}.cuda\n" for i in range(5)))
        return
    for i in range(5):
        if fault == "slow rows" and i == 2:
            pathlib.Path(os.environ["STAND_IN_PID"]).write_text(str(os.getpid()))
            time.sleep(600)
        if fault == "a row" and i == 3:
            print("[  FAILED  ] suite.case3.cuda (1 ms)")
        elif fault == "no NCCL" and pattern.startswith("GroupJob"):
            print(f"[  SKIPPED ] suite.case{i}.cuda (0 ms)")
        else:
            print(f"[       OK ] suite.case{i}.cuda (1 ms)", flush=True)
    if fault == "a row" and name == "op_tests":
        sys.exit(1)


def bench():
    rows = []
    if "ops" in words:
        case = after("ops")
        names = {"attention 4x1024": "attention 4x1024x12x64 forward", "conv ": "conv 128x56 forward"}
        if case.startswith("exact"):
            rows += [{"case": f"{case} {what}", "gflop_per_s": rate, "peak_gflop_per_s": 50000.0}
                     for what, rate in (("product", 300e3), ("forward", 270e3))]
        else:
            rows.append({"case": names.get(case, case), "gflop_per_s": 40000.0, "peak_gflop_per_s": 50000.0,
                         "of_cublas": 0.8 if case.startswith("conv") else 0.9})
    else:
        case = after("models")
        unit = "samples_per_s" if case == "resnet50" else "tokens_per_s"
        rows += [{"case": case, unit: 1000.0}, {"case": case + ", graphs", unit: 1100.0}]
        if "--kernels" in words:
            rows += [{"case": case, "kernel": kernel, "launches": 2, "seconds": seconds}
                     for kernel, seconds in (("product<float>", 3e-3), ("all kernels", 4e-3))]
    if fault == "steps with graphs":
        rows.pop()
    pathlib.Path(after("--json")).write_text("".join(json.dumps(row) + "\n" for row in rows))
    sys.exit(3 if fault == "steps with graphs" else 0)


if name == "train":
    train()
elif name == "bench":
    bench()
elif name == "nvidia-smi":
    print("580.1")
elif name == "compute-sanitizer":
    print("========= Invalid __global__ read of size 4" if fault == "an access" else "", flush=True)
    program = next(i for i, word in enumerate(words) if word.endswith("_tests"))
    os.execv(words[program], words[program:])
else:
    tests()
