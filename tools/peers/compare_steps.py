#!/usr/bin/env python3
"""Compares training steps here and in PyTorch, on the CPU: runs of `bench models` alternate with steps of
tools/peers/torch_steps.py, eager, compiled and with bf16 autocast.

    tools/peers/compare_steps.py [NETWORK..] [--numerics portable|exact] [--bench build/bin/bench] [--threads 2]
        [--rounds 3] [--seconds 2] [--modes MODE..] [--together 6] [--pause] [--json FILE]

NETWORK: any of `bench models`; without names all. In each round each of the programs takes as many steps as PyTorch makes
in `--seconds`. `--together` networks are prepared at a time, which takes minutes where PyTorch compiles, and memory of
all of them; then they are timed. With --pause the timing waits for Enter, so that it can begin when the machine is at
rest.

Prints rows of a table: medians over the rounds; the ratio of Elinvar's rate to that of PyTorch, the faster of eager and
compiled, as a median and range over the rounds; and peak resident memory, for PyTorch of its first mode, with what it
holds before it has a network, `idle`. Portable numerics are compared with float32, and exact ones with bf16 autocast.
--json adds a line for each network with all figures."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from torch_networks.cases import CASES

HERE = pathlib.Path(__file__).resolve().parent
# By numerics; the compiled one last: the compiler takes memory.
MODES = {"portable": ("float32", "bf16", "float32 compiled"), "exact": ("bf16", "bf16 compiled")}
COMPARED = {"portable": "float32", "exact": "bf16"}
OURS = "elinvar"


class Peer:
    """PyTorch's steps of a network in a process that waits for requests."""

    def __init__(self, network, options):
        self.process = subprocess.Popen(
            [sys.executable, HERE / "torch_steps.py", network, "--device", "cpu", "--threads", str(options.threads),
             "--on-request", "--mode", *options.modes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.prepared = {mode: self.answer() for mode in options.modes}

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"torch_steps.py ended with {self.process.wait()}")
        return json.loads(line)

    def rate(self, mode, count):
        self.process.stdin.write(f"{count} {mode}\n")
        self.process.stdin.flush()
        return self.answer()["per_second"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Comparison:
    """The rates of a network by program, one for each round."""

    def __init__(self, network, options):
        self.network, self.options, self.peer = network, options, Peer(network, options)
        first = self.peer.prepared[options.modes[0]]
        self.batch, self.peer_name = first["batch"], first["peer"]
        self.their_memory, self.idle = first["rss_mb"], first["idle_mb"]
        self.count = min(max(round(options.seconds / first["step_seconds"]), 1), 1000)
        self.rates, self.our_memory = {name: [] for name in (OURS, *options.modes)}, 0

    def ours(self):
        with tempfile.NamedTemporaryFile("r", suffix=".json") as rows:
            subprocess.run([self.options.bench, "--threads", str(self.options.threads), "--repeat", str(self.count),
                            "--warm-up", "1", "--json", rows.name, "models", self.network, "--batch", str(self.batch),
                            "--numerics", self.options.numerics],
                           check=True, stdout=subprocess.DEVNULL)
            row = json.loads(rows.read())
        self.our_memory = max(self.our_memory, row["rss_mb"])
        return row["tokens_per_s"] if "tokens_per_s" in row else row["samples_per_s"]

    def round(self):
        self.rates[OURS].append(self.ours())
        for mode in self.options.modes:
            self.rates[mode].append(self.peer.rate(mode, self.count))

    def ratios(self):
        """Of each round, to the faster of PyTorch's modes with the compared precision."""
        compared = [self.rates[mode] for mode in self.options.modes if mode.startswith(COMPARED[self.options.numerics])]
        return [ours / max(theirs) for ours, *theirs in zip(self.rates[OURS], *compared)]

    def row(self):
        rate = lambda name: f"{statistics.median(self.rates[name]):.4g}"
        ratios = self.ratios()
        return (self.network, self.batch, rate(OURS), *map(rate, self.options.modes),
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})", f"{self.our_memory} MB",
                f"{self.their_memory} MB", f"{self.idle} MB")

    def figures(self):
        return {"network": self.network, "batch": self.batch, "peer": self.peer_name, "numerics": self.options.numerics,
                "threads": self.options.threads,
                "steps": self.count, "per_second": self.rates, "ratios": self.ratios(), "rss_mb": self.our_memory,
                "peer_idle_mb": self.idle, "peer_rss_mb": {mode: line["rss_mb"] for mode, line in self.peer.prepared.items()}}


def print_row(cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--bench", default="build/bin/bench")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--numerics", choices=MODES, default="portable", help="of Elinvar's steps")
    parser.add_argument("--modes", nargs="+", metavar="MODE", help="of torch_steps.py; compiled ones last")
    parser.add_argument("--together", type=int, default=6)
    parser.add_argument("--pause", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    networks = options.networks or list(CASES)
    for network in networks:
        if network not in CASES:
            parser.error(f"there is no network {network}: {', '.join(CASES)}")
    options.modes = options.modes or MODES[options.numerics]
    if not any(mode.startswith(COMPARED[options.numerics]) for mode in options.modes):
        parser.error(f"{options.numerics} steps are compared with {COMPARED[options.numerics]}; --modes has none")
    columns = ("network", "batch", "Elinvar", *options.modes, "ratio", "memory", "PyTorch's", "idle")
    print_row(columns)
    print_row(["---"] * len(columns))
    for begin in range(0, len(networks), options.together):
        comparisons = [Comparison(network, options) for network in networks[begin:begin + options.together]]
        if options.pause:
            print("prepared: " + " ".join(c.network for c in comparisons), file=sys.stderr, flush=True)
            sys.stdin.readline()
        for _ in range(options.rounds):
            for comparison in comparisons:
                comparison.round()
        for comparison in comparisons:
            comparison.peer.end()
            print_row(comparison.row())
            if options.json:
                with open(options.json, "a") as file:
                    file.write(json.dumps(comparison.figures()) + "\n")


if __name__ == "__main__":
    main()
