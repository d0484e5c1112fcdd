"""The parts of gpu-check, the most important first. Each is a function of Work and of Setting; it raises NotRun where
it makes no sense, and lets Cut pass. PARTS has their shares of the budget."""
import importlib.util
import json
import re
import shutil
import sys
import time

from gpu_check.work import Cut, text_of

NETWORKS = ("resnet20", "gpt", "llama")
STEPS = (("resnet50", "samples"), ("gpt2", "tokens"))
BATCH = 32  # of the timed steps
PEER_MODES = ("float32", "bf16", "bf16 compiled")
WITH_GPU_TESTS = "tensor_tests nn_tests models_tests data_tests job_tests".split()


class NotRun(Exception):
    """The part makes no sense on this machine or device."""


class Setting:
    """What the parts run on: programs in `bin`, `device` cuda, ptx or emulated, and files of PyTorch's steps."""

    def __init__(self, bin_folder, device, peer):
        self.bin, self.device, self.peer = bin_folder, device, peer
        self.name = "emulated" if device == "emulated" else "cuda"  # as the programs say
        self.rehearsal = device != "cuda"
        self.on_cpu = {}  # (network, numerics): (final line, seconds)


def rows(work, setting):
    """Each op has equal bits on GPU and CPU."""
    work.tests([setting.bin / "op_tests"], f"*.{setting.name}", most=24 if setting.rehearsal else None)
    if not work.failures:
        work.figure("rows with equal bits", work.done, f"of {work.total}")


def configuration(network, rehearsal):
    """A network that both devices train; the smallest possible one in rehearsals."""
    steps, batch, side, context, width, layers, lines = ((2, 4, 8, 16, 32, 1, 60) if rehearsal else
                                                         (20, 128, 32, 256, 192, 4, 3000))
    text = f"[run]\nsteps = {steps}\nvirtual_ranks = 2\nseed = 3\n"
    if network == "resnet20":
        return text + (f"batch_size = {batch}\n[data]\nkind = \"synthetic\"\nsize = {4 * batch + 3}\n"
                       f"image_size = {side}\ncrop_padding = 1\nflip = true\n[model]\nkind = \"resnet20\"\n"
                       "[optimizer]\nlr = 0.05\nmomentum = 0.9\nweight_decay = 1e-4\n")
    return text + (f"batch_size = {batch // 4 + 1}\n[data]\nkind = \"synthetic_text\"\nsize = {lines}\n"
                   f"context = {context}\n[model]\nkind = \"{network}\"\nlayers = {layers}\nheads = 4\n"
                   f"channels = {width}\n" + ("" if network == "llama" else "dropout = 0.1\n") +
                   "[optimizer]\nkind = \"adamw\"\nlr = 1e-3\nclip_norm = 1.0\n")


def train(work, setting, network, device, graphs=False, numerics="portable"):
    """Returns the final line of a run, its seconds and its output."""
    name = f"{network}.{device}" + (".graphs" if graphs else "") + (".exact" if numerics == "exact" else "")
    settings = work.log / f"{network}.toml"
    settings.write_text(configuration(network, setting.rehearsal))
    folder = work.log / name
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    code, text = work.run([setting.bin / "train", "run", settings, "--run-dir", folder, "--device", device] +
                          ["--set", f"run.numerics={numerics}"] +
                          (["--set", "run.cuda_graphs=true"] if graphs else []), name + ".log")
    seconds, final = time.monotonic() - began, re.findall(r"^final .*", text, re.M)
    return (final[-1] if code == 0 and final else f"exit code {code}, {work.log / name}.log"), seconds, text


def compare(work, setting, networks, graphs=False, numerics="portable"):
    work.total += len(networks)
    for network in networks:
        if (network, numerics) not in setting.on_cpu:
            line, seconds, _ = train(work, setting, network, "cpu", numerics=numerics)
            setting.on_cpu[network, numerics] = line, seconds
        expected, on_cpu = setting.on_cpu[network, numerics]
        line, seconds, text = train(work, setting, network, setting.name, graphs, numerics)
        label = network + (", graphs" if graphs else "") + (", exact" if numerics == "exact" else "")
        if line != expected or not line.startswith("final "):
            work.fail(f"{label}: '{line}', on the CPU '{expected}'")
        elif "without a graph" in text:
            work.fail(f"{label}: computed without a graph; {work.log}")
        else:
            work.figure(label + ": digest", line.split("digest=")[-1], "")
            work.figure(label + ": run", round(seconds, 2), "s")
            work.figure(label + ": run on the CPU", round(on_cpu, 2), "s")
        work.done += 1


def digests(work, setting):
    """Trained networks have the CPU's digest."""
    compare(work, setting, NETWORKS)


def graphs(work, setting):
    """The same with run.cuda_graphs."""
    compare(work, setting, NETWORKS, graphs=True)


def exact(work, setting):
    """Exact numerics: op rows and trained networks have the CPU's bits."""
    work.tests([setting.bin / "op_tests"], f"exact_*.{setting.name}", most=4 if setting.rehearsal else None)
    if not work.failures:
        work.figure("exact rows with equal bits", work.done, f"of {work.total}")
    compare(work, setting, NETWORKS, numerics="exact")


def bench(work, setting, log, *words):
    """Yields the rows of a bench call, also those before a failure or a cut."""
    out = work.log / f"{log}.json"
    out.write_text("")
    try:
        code, _ = work.run([setting.bin / "bench", "--json", out, *words], log + ".log")
        if code != 0:
            work.fail(f"{' '.join(map(str, words))}: exit code {code}; {work.log / log}.log")
    finally:
        rows_of_it = [json.loads(line) for line in text_of(out).splitlines() if line.endswith("}")]
        yield from rows_of_it


def products(work, setting):
    """Products, attention and convolutions, compared with cuBLAS and with the peak of the card at its nominal clock."""
    cases = ("matmul 4096x4096x4096", "exact 4096x4096x4096", "matmul 1024x1024x1024", "attention 4x1024", "conv ")
    work.total = len(cases)
    for case in cases:
        for row in bench(work, setting, f"products.{work.done}", "ops", case, "--device", "cuda"):
            work.figure(row["case"], round(row["gflop_per_s"], 1), "GFLOP/s")
            if not case.startswith("exact"):
                work.figure(row["case"] + ": share of the peak", round(row["gflop_per_s"] / row["peak_gflop_per_s"], 3),
                            "")
            if row.get("of_cublas"):
                work.figure(row["case"] + ": of cuBLAS", round(row["of_cublas"], 3), "")
        work.done += 1


def steps(work, setting):
    """Steps of a ResNet-50 and a GPT-2, portable, in bf16 and exact, each with and without graphs."""
    cases = [(name, unit, precision) for name, unit in STEPS for precision in ("portable", "bf16", "exact")]
    work.total = len(cases)
    for name, unit, precision in cases:
        for row in bench(work, setting, f"steps.{name}.{precision}", "--repeat", 10, "models", name, "--device", "cuda",
                         "--batch", BATCH, "--precision", precision):
            work.figure(f"{row['case']}, {precision}", round(row[unit + "_per_s"], 1), unit + "/s")
            if "gpu_mb" in row:
                work.figure(f"{row['case']}, {precision}: memory", row["gpu_mb"], "MB")
        work.done += 1


def kernels(work, setting):
    """The kernels that take longest in these steps, with their share of the time of all kernels."""
    cases = [(name, precision) for name, _ in STEPS for precision in ("portable", "bf16", "exact")]
    work.total = len(cases)
    for name, precision in cases:
        rows = [row for row in bench(work, setting, f"kernels.{name}.{precision}", "--repeat", 2, "models", name,
                                     "--device", "cuda", "--batch", BATCH, "--precision", precision, "--kernels", 12)
                if "kernel" in row and row["case"] == name]
        for row in rows:
            work.figure(f"{name}, {precision}: {row['kernel']}, {row['launches']} launches",
                        round(1e3 * row["seconds"], 3), f"ms, {100 * row['seconds'] / rows[-1]['seconds']:.0f} %")
        work.done += 1


def peers(work, setting):
    """The same steps in PyTorch: float32 without TF32, bf16 by autocast, and that compiled."""
    if importlib.util.find_spec("torch") is None:
        raise NotRun("Python here has no PyTorch")
    cases = [(name, unit, mode) for mode in PEER_MODES for name, unit in STEPS]
    work.total = len(cases)
    for name, unit, mode in cases:
        log = f"peers.{name}.{mode.replace(' ', '.')}.log"
        code, text = work.run([sys.executable, setting.peer, name, "--mode", mode, "--batch", BATCH], log)
        rate = re.findall(r'^\{"peer".*\}$', text, re.M)
        if code != 0 or not rate:
            work.fail(f"PyTorch's {name}, {mode}: exit code {code}; {work.log / log}")
        else:
            row = json.loads(rate[-1])
            work.figure(f"PyTorch {name}, {mode}", round(row["per_second"], 1), unit + "/s")
            if "gpu_mb" in row:
                work.figure(f"PyTorch {name}, {mode}: memory", row["gpu_mb"], "MB")
        work.done += 1


def nccl(work, setting):
    """Jobs whose two workers exchange gradients, and values of virtual shards, by NCCL on one card, with the bits of one
    worker."""
    if work.tests([setting.bin / "job_tests"], "GroupJob.OnACard:ReplicaGroupJob.OnACard"):
        work.failures.clear()
        raise NotRun("the library of NCCL was not found")
    if not work.failures:
        work.figure("job with NCCL", "equal", "")


def tests(work, setting):
    """Kernels in cases that no row covers, whole networks, copies, jobs of CPUs and GPUs."""
    name, programs = setting.name, [setting.bin / p for p in WITH_GPU_TESTS if (setting.bin / p).exists()]
    pattern = f"*/{name}:*/{name}/*:*/{name}_*"
    work.tests([p for p in programs if p.name == "nn_tests"] if setting.rehearsal else programs, pattern,
               most=4 if setting.rehearsal else None)
    if not work.failures:
        work.figure("tests that passed", work.done, f"of {work.total}")


def sanitizer(work, setting):
    """compute-sanitizer on the rows and on products, without the memory cache, whose segments would hide accesses
    beyond a block and to uninitialized memory. A cut run counts as clean so far if no error was reported."""
    if shutil.which("compute-sanitizer") is None:
        raise NotRun("compute-sanitizer is not installed")
    # racecheck reports a race within a kernel of cuDNN, and initcheck does not see what cuBLAS stores by bulk copies
    # (H200, CUDA 13.0), so both leave out the libraries' products.
    cases = [(tool, *what) for tool in ("memcheck", "racecheck", "initcheck")
             for what in (("tensor_tests", ("*FastProducts*/cuda:" if tool == "memcheck" else "") +
                           "*GpuProduct*/cuda*"), ("op_tests", "*.cuda"))]
    work.total = len(cases)
    for i, (tool, program, pattern) in enumerate(cases):
        log = f"sanitizer.{tool}.{program}.log"
        began, cut = time.monotonic(), False
        try:
            code, text = work.run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", setting.bin / program,
                                   "--gtest_filter=" + pattern], log, {"ELINVAR_DEVICE_CACHE": "off"},
                                  seconds=work.left() / (len(cases) - i))
        except Cut:
            code, text, cut = 0, text_of(work.log / log), True
        if code != 0 or re.search(r"^=+ (Invalid|Uninitialized|Error|Program hit|.*hazard)", text, re.M):
            work.fail(f"{tool}, {program}: exit code {code}; {work.log / log}")
        else:
            clean = len(re.findall(r"^\[       OK \] ", text, re.M))
            work.figure(f"{tool}, {program}: tests without an error", clean, "")
            took = round(time.monotonic() - began, 1)
            work.figure(f"{tool}, {program}: " + ("cut after" if cut else "took"), took, "s")
        work.done += not cut


# Part: (function, share of the seconds that are left, fewest seconds that it starts with, what it needs a card for).
PARTS = {"rows": (rows, 0.25, 2, ""), "digests": (digests, 0.3, 2, ""), "graphs": (graphs, 0.3, 2, ""),
         "exact": (exact, 0.2, 2, ""), "products": (products, 0.25, 10, "rates"), "steps": (steps, 0.3, 20, "rates"),
         "peers": (peers, 0.5, 20, "rates"), "kernels": (kernels, 0.2, 20, "rates"), "nccl": (nccl, 0.2, 10, "NCCL"),
         "tests": (tests, 0.5, 2, ""),
         "sanitizer": (sanitizer, 1.0, 20, "compute-sanitizer")}
