"""The questions that a card answers: the rows of the table in tensor/GPU.md, with what their results are made of."""
# Shares of the peak, and TFLOP/s of exact products: tests/ptx/inner_loops.py derives them.
PREDICTED = {"matmul": 0.85, "attention": 0.41, "exact": 302}


class Question:
    """`answer` makes the result of a dictionary of figures, or raises KeyError where a figure is missing."""

    def __init__(self, part, text, target, answer):
        self.part, self.text, self.target, self.answer = part, text, target, answer


def percent(share):
    """With a decimal, so that rounding reaches no target."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def faster(figures, name, precision):
    """The higher rate of a step, with or without graphs."""
    return max(figures[f"{name}, {precision}"], figures.get(f"{name}, graphs, {precision}", 0.0))


def against(name, precision, mode):
    return lambda f: (f"{percent(faster(f, name, precision) / f[f'PyTorch {name}, {mode}'])}: "
                      f"{faster(f, name, precision):.0f} against {f[f'PyTorch {name}, {mode}']:.0f}")


def questions():
    names = {"resnet20": "ResNet-20", "gpt": "small GPT", "llama": "small LLaMA"}
    steps = {"resnet50": "ResNet-50", "gpt2": "GPT-2 124M"}
    all_of_them = [Question("rows", "op rows: bits of GPU and CPU", "equal",
                            lambda f: f"equal, {f['rows with equal bits']} rows")]
    for key, name in names.items():
        all_of_them.append(Question("digests", f"{name}: digest of GPU and CPU", "equal",
                                    lambda f, key=key: f"equal, {f[key + ': digest']}"))
    for key, name in names.items():
        all_of_them.append(Question("graphs", f"{name}, graphs: digest of GPU and CPU", "equal",
                                    lambda f, key=key: f"equal, {f[key + ', graphs: digest']}"))
    all_of_them.append(Question("exact", "exact op rows: bits of GPU and CPU", "equal",
                                lambda f: f"equal, {f['exact rows with equal bits']} rows"))
    for key, name in names.items():
        all_of_them.append(Question("exact", f"{name}, exact: digest of GPU and CPU", "equal",
                                    lambda f, key=key: f"equal, {f[key + ', exact: digest']}"))
    large = "matmul 4096x4096x4096"
    all_of_them += [
        Question("products", "product of 4096: float32 rate of cuBLAS", ">= 85 %",
                 lambda f: f"{percent(f[large + ': of cuBLAS'])}, {f[large]:.0f} GFLOP/s"),
        Question("products", "product of 4096: share of the nominal peak", f"predicted {percent(PREDICTED['matmul'])}",
                 lambda f: percent(f[large + ": share of the peak"])),
        Question("products", "exact product of 4096: TFLOP/s, and with rounding of a factor",
                 f">= 300, predicted {PREDICTED['exact']}",
                 lambda f: " and ".join(f"{f['exact 4096x4096x4096 ' + what] / 1000:.0f}" for what in
                                        ("product", "forward"))),
        Question("products", "attention 4x1024x12x64, forward: share of the nominal peak",
                 f"predicted {percent(PREDICTED['attention'])}",
                 lambda f: percent(f["attention 4x1024x12x64 forward: share of the peak"])),
        Question("products", "convolutions: least rate of cuBLAS's products of their extents", "none",
                 least_convolution)]
    for key, name in steps.items():
        all_of_them.append(Question("steps", f"{name}, portable: step with graphs, rate of that without", "none",
                                    lambda f, key=key: percent(f[f"{key}, graphs, portable"] / f[f"{key}, portable"])))
    for key, name in steps.items():
        all_of_them.append(Question("steps", f"{name}, exact: rate of portable", "none",
                                    lambda f, key=key: percent(faster(f, key, "exact") / faster(f, key, "portable"))))
    targets = {"resnet50": ">= 70 %", "gpt2": "none"}
    for key, name in steps.items():
        all_of_them.append(Question("peers", f"{name}, portable: rate of PyTorch float32", targets[key],
                                    against(key, "portable", "float32")))
        all_of_them.append(Question("peers", f"{name}, bf16: rate of PyTorch bf16", "none",
                                    against(key, "bf16", "bf16")))
        all_of_them.append(Question("peers", f"{name}, bf16: rate of PyTorch bf16, compiled", ">= 100 %",
                                    against(key, "bf16", "bf16 compiled")))
    for key, name in steps.items():
        all_of_them.append(Question("peers", f"{name}, exact: rate of PyTorch bf16", "none",
                                    against(key, "exact", "bf16")))
    all_of_them += [
        Question("nccl", "NCCL on one card: a job's bits", "those of one worker", lambda f: f["job with NCCL"]),
        Question("tests", "kernels, networks, copies, jobs: tests of GPUs", "pass",
                 lambda f: f"{f['tests that passed']} passed")]
    for tool in ("memcheck", "racecheck", "initcheck"):
        all_of_them.append(Question("sanitizer", f"compute-sanitizer, {tool}", "no error", sanitized(tool)))
    return all_of_them


def least_convolution(figures):
    case = min((name for name in figures if name.startswith("conv ") and name.endswith(": of cuBLAS")),
               key=lambda name: figures[name], default="no convolution")
    return f"{percent(figures[case])}, {case[:-len(': of cuBLAS')]}"


def sanitized(tool):
    def answer(figures):
        return "no error in " + " and ".join(
            f"{figures[f'{tool}, {program}: tests without an error']} tests of {program}" +
            (" before the cut" if f"{tool}, {program}: cut after" in figures else "")
            for program in ("tensor_tests", "op_tests"))
    return answer


def result(question, parts, figures):
    """What the table says of a question."""
    part = parts.get(question.part)
    if part is None:
        return "not run: not asked"
    if part["state"] == "not run":
        return "not run: " + part["why"]
    try:
        return question.answer(figures)
    except KeyError:
        return "FAILED: " + "; ".join(part["failures"]) if part["state"] == "failed" else part["why"] or "not measured"


def table(outcomes=()):
    """The rows of the table in tensor/GPU.md, of what JSON files say of runs; of several, the last that has a part.
    Without outcomes nothing was run."""
    parts, where, figures = {}, {}, {}
    for outcome in outcomes:
        for part in outcome["parts"]:
            parts[part["name"]] = part
            where[part["name"]] = [outcome["card"], outcome["driver"], outcome["date"][:10]]
    for part in parts.values():
        figures.update((f["name"], f["value"]) for f in part["figures"])
    lines = ["| question | target | card | driver | date | result |", "| --- | --- | --- | --- | --- | --- |"]
    for q in questions():
        text = result(q, parts, figures) if outcomes else "not run"
        here = ["-"] * 3 if text.startswith("not run") else where[q.part]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in [q.text, q.target, *here, text]) + " |")
    return lines
