"""What programs share that train a configuration in PyTorch with several seeds: their command line and their output."""
import argparse
import time
import tomllib

import torch


def read_options(data):
    """Returns the options, of which `data` is the name of the second one, and the configuration with its overrides."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument(data)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", nargs="*", default=[])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with open(options.config, "rb") as file:
        config = tomllib.load(file)
    for setting in options.set:
        name, value = setting.split("=", 1)
        table, key = name.split(".")
        config.setdefault(table, {})[key] = tomllib.loads(f"v = {value}")["v"]
    return options, config


def print_scores(seeds, train, score):
    """Trains a network for each seed, and prints its loss and accuracy, and the seconds of its training."""
    for seed in seeds:
        began = time.time()
        network = train(seed)
        seconds = time.time() - began
        loss, accuracy = score(network)
        print(f"seed {seed} loss {loss:.4f} accuracy {accuracy:.4f} ({seconds:.0f} s)", flush=True)
