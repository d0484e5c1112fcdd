#!/usr/bin/env python3
"""Tests of tools/gpu-check: its order, budget, states, exit codes and table, with programs that stand in for those that
need a card. ctest runs it also with the real programs, on the devices ptx and emulated."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
PROGRAMS = "train bench op_tests tensor_tests nn_tests job_tests nvidia-smi compute-sanitizer".split()
PARTS = "rows digests graphs exact products steps peers kernels nccl tests sanitizer".split()
TORCH = """import json, sys
print(json.dumps({"peer": "PyTorch", "per_second": 2000.0}))
sys.exit(0)
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        for folder in ("bin", "python"):
            (self.folder / folder).mkdir()
        for program in PROGRAMS:
            (self.folder / "bin" / program).symlink_to(here / "stand_in.py")
        (self.folder / "python/torch.py").write_text(TORCH)

    def check(self, *words, fault="", torch=True, path=True):
        environment = {**os.environ, "STAND_IN_FAULT": fault, "STAND_IN_PID": str(self.folder / "pid"),
                       "PYTHONPATH": str(self.folder / "python") if torch else "", "PYTHONDONTWRITEBYTECODE": "1",
                       "PATH": (f"{self.folder}/bin:" if path else "") + os.environ["PATH"]}
        ended = subprocess.run([sys.executable, root / "tools/gpu-check", "--bin", self.folder / "bin", "--log",
                                self.folder / "log", "--json", self.folder / "out.json", *words],
                               env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        self.text = ended.stdout.decode()
        out = self.folder / "out.json"
        self.outcome = json.loads(out.read_text()) if out.exists() else {}
        self.parts = {part["name"]: part for part in self.outcome.get("parts", [])}
        return ended.returncode

    def table(self):
        printed = subprocess.run([sys.executable, root / "tools/gpu-check", "--table", self.folder / "out.json"],
                                 stdout=subprocess.PIPE, check=True).stdout.decode()
        return [line.split(" | ") for line in printed.splitlines()[2:]]

    def test_everything_passes_in_order(self):
        self.assertEqual(self.check(), 0, self.text)
        self.assertEqual(list(self.parts), PARTS)
        for part in self.parts.values():
            self.assertEqual(part["state"], "passed", part)
            self.assertGreater(len(part["figures"]), 0, part)
        self.assertEqual((self.outcome["card"], self.outcome["driver"], self.outcome["cut"]), ("Some Card", "580.1", []))
        for row in self.table():
            self.assertEqual(row[2:4], ["Some Card", "580.1"])
            for word in ("not run", "FAILED", "not measured"):
                self.assertNotIn(word, row[5])
        self.assertIn({"name": "gpt2, bf16: product<float>, 2 launches", "value": 3.0, "unit": "ms, 75 %"},
                      self.parts["kernels"]["figures"])
        results = {row[0][2:]: row[5] for row in self.table()}
        self.assertEqual(results["product of 4096: float32 rate of cuBLAS"], "90 %, 40000 GFLOP/s |")
        self.assertEqual(results["ResNet-50, portable: rate of PyTorch float32"], "55 %: 1100 against 2000 |")
        self.assertEqual(results["ResNet-50, exact: rate of PyTorch bf16"], "55 %: 1100 against 2000 |")
        self.assertEqual(results["exact product of 4096: TFLOP/s, and with rounding of a factor"], "300 and 270 |")

    def test_a_failed_row_is_named(self):
        self.assertEqual(self.check("rows", "digests", fault="a row"), 1, self.text)
        self.assertEqual(self.parts["rows"]["state"], "failed")
        self.assertIn("suite.case3.cuda", self.parts["rows"]["failures"][0])
        self.assertEqual(self.parts["digests"]["state"], "passed")
        self.assertIn("failed: rows", self.text)
        self.assertTrue(self.table()[0][5].startswith("FAILED: op_tests"))

    def test_a_later_file_replaces_parts_of_an_earlier_one(self):
        self.assertEqual(self.check("rows", "digests", fault="digest of gpt"), 1, self.text)
        (self.folder / "first.json").write_text((self.folder / "out.json").read_text())
        self.assertEqual(self.check("digests"), 0, self.text)
        printed = subprocess.run([sys.executable, root / "tools/gpu-check", "--table", self.folder / "first.json",
                                  self.folder / "out.json"], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.assertIn("equal, 5 rows", printed)
        self.assertIn("equal, good", printed)
        self.assertNotIn("FAILED", printed)

    def test_a_digest_that_differs_fails(self):
        self.assertEqual(self.check("digests", "graphs", fault="digest of gpt"), 1, self.text)
        self.assertEqual([self.parts[p]["state"] for p in ("digests", "graphs")], ["failed", "failed"])
        results = [row[5] for row in self.table()]
        self.assertEqual(results[1], "equal, good |")
        self.assertIn("FAILED: gpt: ", results[2])

    def test_figures_before_a_failure_are_kept(self):
        self.assertEqual(self.check("steps", "peers", fault="steps with graphs"), 1, self.text)
        self.assertEqual(self.parts["steps"]["state"], "failed")
        results = {row[0][2:]: row[5] for row in self.table()}
        self.assertEqual(results["GPT-2 124M, bf16: rate of PyTorch bf16, compiled"], "50 %: 1000 against 2000 |")
        self.assertIn("models resnet50", results["GPT-2 124M, portable: step with graphs, rate of that without"])

    def test_an_invalid_access_fails(self):
        self.assertEqual(self.check("sanitizer", fault="an access"), 1, self.text)
        self.assertEqual(len(self.parts["sanitizer"]["failures"]), 6)

    def test_a_small_budget_cuts(self):
        began = time.monotonic()  # rows have 6 seconds, steps fewer than they need
        self.assertEqual(self.check("--budget", "24", fault="slow rows"), 3, self.text)
        self.assertLess(time.monotonic() - began, 120)
        rows = self.parts["rows"]
        self.assertEqual((rows["state"], rows["done"], rows["total"]), ("cut", 2, 5))
        self.assertRegex(rows["why"], r"^cut after \d+ s, 2 of 5 done$")
        self.assertEqual(self.table()[0][5], rows["why"] + " |")
        self.assertEqual(self.parts["steps"]["state"], "not run")
        self.assertIn("s left is", self.parts["steps"]["why"])
        self.assertIn("steps", self.outcome["cut"])
        self.assertIn("\ncut: rows ", self.text)
        with self.assertRaises(ProcessLookupError):  # what was cut runs no more
            os.kill(int((self.folder / "pid").read_text()), 0)

    def test_what_is_not_installed_is_not_run(self):
        for program in ("nvidia-smi", "compute-sanitizer"):
            (self.folder / "bin" / program).unlink()
        self.assertEqual(self.check("peers", "nccl", fault="no NCCL", torch=False, path=False), 0, self.text)
        for part, why in (("peers", "PyTorch"), ("nccl", "NCCL")):
            self.assertEqual(self.parts[part]["state"], "not run")
            self.assertIn(why, self.parts[part]["why"])
        self.assertEqual(self.outcome["driver"], "-")

    def test_a_rehearsal_says_what_needs_a_card(self):
        self.assertEqual(self.check("--device", "emulated", "--budget", "30", "steps", "nccl", "digests"), 0, self.text)
        self.assertEqual([(p["name"], p["state"]) for p in self.outcome["parts"]],
                         [("digests", "passed"), ("steps", "not run"), ("nccl", "not run")])
        self.assertEqual(self.parts["steps"]["why"], "only a card has rates")
        self.assertEqual(self.outcome["cut"], [])

    def test_wrong_calls(self):
        for words in (["--no-such-option"], ["no-such-part"], ["--device", "tpu"], ["--bin", "/nowhere"]):
            self.assertEqual(self.check(*words), 2, self.text)

    def test_the_document_has_a_row_for_each_question(self):
        lines = (root / "tensor/GPU.md").read_text().splitlines()
        begin = lines.index("| question | target | card | driver | date | result |")
        documented = []
        for line in lines[begin + 2:]:
            if not line.startswith("|"):
                break
            documented.append(line.split(" | ")[:2])
        printed = subprocess.run([sys.executable, root / "tools/gpu-check", "--table"], stdout=subprocess.PIPE,
                                 check=True).stdout.decode()
        self.assertEqual(documented, [line.split(" | ")[:2] for line in printed.splitlines()[2:]])


if __name__ == "__main__":
    unittest.main()
