#!/usr/bin/env python3
"""Times training steps of PyTorch: the networks of `bench models`, with the same optimisers and random data.

    tools/peers/torch_steps.py NETWORK [--mode MODE..] [--batch N] [--repeat 10] [--device cuda] [--threads 2]

NETWORK is one of CASES in torch_networks/cases.py; without --batch it has the batch of `bench models`. Some need
torchvision or transformers.

Modes: float32 (TF32 off), bf16 (autocast), and either with ` compiled` (torch.compile). Prints a line of JSON for each
with the median rate, `per_second`, of images, tokens or rows, and the peak memory: `rss_mb` of the process, of which it held
`idle_mb` before it made the network; on a GPU `gpu_mb` of tensors. Several modes share the weights; name the compiled ones last, since the compiler takes memory too.

With --on-request it prepares all modes and prints their lines; then it reads lines `COUNT MODE` from its input, and
answers each with the line of so many more steps. tools/peers/compare_steps.py uses it."""
import argparse
import json
import statistics
import sys
import time

import torch

from torch_networks.cases import CASES

MODES = ("float32", "float32 compiled", "bf16", "bf16 compiled")


def status_mb(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith(key + ":"))


class PeakMemory:
    """The peak since reset(): of tensors on a GPU, or the resident set of the process."""

    def __init__(self, device):
        self.on_gpu = device.type == "cuda"
        self.idle_mb = status_mb("VmRSS")

    def reset(self):
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        else:
            with open("/proc/self/clear_refs", "w") as clear:
                clear.write("5")

    def figure(self):
        if self.on_gpu:
            return {"gpu_mb": torch.cuda.max_memory_allocated() >> 20}
        return {"rss_mb": status_mb("VmHWM"), "idle_mb": self.idle_mb}


class Steps:
    """The steps of a case in several modes."""

    def __init__(self, options):
        self.options, self.device = options, torch.device(options.device)
        self.memory = PeakMemory(self.device)
        self.batch = options.batch or CASES[options.network][0]
        self.case = CASES[options.network][1](self.batch, self.device)
        self.networks = {mode: torch.compile(self.case.model) if mode.endswith("compiled") else self.case.model
                         for mode in options.mode}
        # One thread is timed by its own clock, as `bench` does.
        self.now = time.process_time if options.threads == 1 and options.device == "cpu" else time.perf_counter

    def seconds(self, mode):
        began = self.now()
        self.case.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=mode.startswith("bf16")):
            loss = self.case.loss(self.networks[mode])
        loss.backward()
        self.case.optimizer.step()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return self.now() - began

    def warm_up(self, mode):
        for _ in range(5 if self.device.type == "cuda" else 1):
            self.seconds(mode)

    def time(self, mode, count):
        """Prints the line of `count` steps."""
        self.memory.reset()
        median = statistics.median(self.seconds(mode) for _ in range(count))
        print(json.dumps({"peer": "PyTorch " + torch.__version__, "network": self.options.network, "mode": mode,
                          "batch": self.batch, "step_seconds": median, "per_second": self.case.items / median,
                          **self.memory.figure()}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=CASES)
    parser.add_argument("--mode", nargs="+", default=["float32"], choices=MODES)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int, help="CPU threads")
    parser.add_argument("--on-request", action="store_true")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    if options.threads:
        torch.set_num_threads(options.threads)
    steps = Steps(options)
    for mode in options.mode:
        steps.warm_up(mode)
        steps.time(mode, 1 if options.on_request else options.repeat)
    if options.on_request:
        for line in sys.stdin:
            count, mode = line.strip().split(" ", 1)
            steps.time(mode, int(count))


if __name__ == "__main__":
    main()
