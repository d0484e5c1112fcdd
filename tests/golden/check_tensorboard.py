#!/usr/bin/env python3
"""Reads the files of runs with TensorBoard itself: python3 check_tensorboard.py RUN_DIR... (pip install tensorboard).

Scalars must be those of metrics.jsonl, each step once; histograms, images and texts must be there if the configuration
asks for them, with counts that add up. Exit code 1 if anything differs.
"""
import json
import pathlib
import struct
import sys
import tomllib

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SCALARS = {"train/loss": "loss", "train/accuracy": "accuracy", "train/learning_rate": "lr",
           "train/gradient_norm": "gradient_norm", "job/generation": "generation", "job/workers": "workers",
           "job/goodput": "goodput", "speed/reduce_seconds": "reduce_seconds"}


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def scalars_of(events, tag):
    """Returns {step: value} from either form in which TensorBoard may hold a scalar."""
    if tag in events.Tags()["scalars"]:
        return [(e.step, e.value) for e in events.Scalars(tag)]
    return [(e.step, e.tensor_proto.float_val[0]) for e in events.Tensors(tag)]


def check(run):
    wrong = []
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={k: 0 for k in
                              ("scalars", "histograms", "images", "tensors", "compressedHistograms")})
    events.Reload()
    settings = tomllib.loads((run / "config.toml").read_text())["tensorboard"]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = {line["step"]: line for line in lines if "loss" in line}
    if settings["scalars"]:
        for tag, key in SCALARS.items():
            found = scalars_of(events, tag)
            expected = [(step, float32(line[key])) for step, line in sorted(steps.items())]
            if found != expected:
                wrong.append(f"{tag}: {len(found)} values, {len(expected)} expected, first difference "
                             f"{next((p for p in zip(found, expected) if p[0] != p[1]), None)}")
        found = scalars_of(events, "validation/loss")
        expected = [(line["step"], float32(line["validation_loss"])) for line in lines if "validation_loss" in line]
        if found != expected:
            wrong.append(f"validation/loss: {found}, expected {expected}")
    tags = events.Tags()
    last = max(steps, default=0)
    for setting, kind, prefix in (("histograms_every", "histograms", "parameters/"), ("images_every", "images", "inputs/"),
                                  ("text_every", "tensors", "text")):
        every = settings[setting]
        mine = [tag for tag in tags[kind] if tag.startswith(prefix)]
        if every == 0:
            continue
        if not mine:
            wrong.append(f"no {kind} of {prefix}")
        for tag in mine:
            read = {"histograms": events.Histograms, "images": events.Images, "tensors": events.Tensors}[kind](tag)
            if [e.step for e in read] != list(range(every, last + 1, every)):
                wrong.append(f"{tag}: steps {[e.step for e in read]}")
            for e in read:
                if kind == "histograms" and sum(e.histogram_value.bucket) != e.histogram_value.num:
                    wrong.append(f"{tag}: counts do not add up at step {e.step}")
                if kind == "images" and not e.encoded_image_string.startswith(b"\x89PNG"):
                    wrong.append(f"{tag}: no PNG at step {e.step}")
                if kind == "tensors":
                    e.tensor_proto.string_val[0].decode("utf-8")
    counts = ", ".join(f"{len(tags[kind])} {kind}" for kind in ("scalars", "histograms", "images", "tensors"))
    print(f"{run}: {len(steps)} steps; {counts}; {'; '.join(wrong) or 'as expected'}")
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if all([check(pathlib.Path(run)) for run in sys.argv[1:]]) else 1)
