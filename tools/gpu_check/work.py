"""A part of gpu-check: the processes that it starts, its share of the budget, and what it found."""
import os
import pathlib
import re
import signal
import subprocess
import time


class Cut(Exception):
    """The time of a part is over."""


class Work:
    """`done` of `total` items are done at any time, so a part that is cut can say how far it came."""

    def __init__(self, name, seconds, log):
        self.name, self.log = name, log
        self.began = time.monotonic()
        self.deadline = self.began + seconds
        self.done, self.total = 0, 0
        self.figures, self.failures = [], []
        self.cut = False

    def figure(self, name, value, unit):
        self.figures.append({"name": name, "value": value, "unit": unit})

    def fail(self, what):
        self.failures.append(what)

    def left(self):
        return self.deadline - time.monotonic()

    def run(self, command, log, environment=None, seconds=None):
        """Returns the exit code and the output, which is also in the file `log`. Raises Cut when the part's time, or
        `seconds`, is over; the process and those that it started are ended before."""
        path = self.log / log
        limit = min(self.left(), self.left() if seconds is None else seconds)
        with open(path, "wb") as out:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, start_new_session=True,
                                       env={**os.environ, **(environment or {})})
            try:
                code = process.wait(max(limit, 0.0))
            except subprocess.TimeoutExpired:
                self.cut = True
                raise Cut(str(path)) from None
            finally:
                end_group(process)
        return code, text_of(path)

    def tests(self, programs, pattern, most=None):
        """Runs the tests of GoogleTest programs that match a pattern, at most `most` of each program, which are spread
        evenly. Returns how many were skipped; unless some ran, the part has failed."""
        chosen = {}
        for program in programs:
            names = listed(program, pattern)
            chosen[program] = names if most is None else names[::max(1, -(-len(names) // most))]
        self.total += sum(map(len, chosen.values()))
        skipped = 0
        for program, names in chosen.items():
            if not names:
                continue
            log = f"{self.name}.{program.name}.log"
            wanted = pattern if most is None else ":".join(names)
            try:
                code, text = self.run([program, "--gtest_filter=" + wanted], log)
            except Cut:
                self.count(text_of(self.log / log))
                raise
            passed, missed, failed = self.count(text)
            skipped += missed
            if code != 0 or failed:
                self.fail(f"{program.name}: exit code {code}, {len(failed)} failed: {' '.join(failed[:8])}; "
                          f"{self.log / log}")
        if self.done == 0 and not self.failures:
            self.fail(f"no test ran: {skipped} of {self.total} skipped themselves")
        if skipped:
            self.figure("tests that skipped themselves", skipped, "")
        return skipped

    def count(self, text):
        passed = len(re.findall(r"^\[       OK \] ", text, re.M))
        missed = len(re.findall(r"^\[  SKIPPED \] \S+ \(", text, re.M))
        failed = sorted(set(re.findall(r"^\[  FAILED  \] ([^\s,]+)[^\n]*\(\d+ ms\)", text, re.M)))
        self.done += passed
        for name in failed if self.cut else []:
            self.fail(f"{name} failed before the cut")
        return passed, missed, failed


def end_group(process):
    """Ends what is left of a process and of those that it started, which are its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(2.0)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def text_of(path):
    return pathlib.Path(path).read_text(errors="replace")


def listed(program, pattern):
    """The names of a program's tests that match."""
    text = subprocess.run([str(program), "--gtest_list_tests", "--gtest_filter=" + pattern], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60).stdout.decode()
    suite, names = "", []
    for line in text.splitlines():
        line = line.split("#")[0].rstrip()
        if line.endswith(".") and not line.startswith(" "):
            suite = line
        elif line.startswith("  ") and suite:
            names.append(suite + line.strip())
    return names
