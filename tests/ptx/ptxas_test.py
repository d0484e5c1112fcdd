#!/usr/bin/env python3
"""Tests of ptxas.py on the report of a kernel, and of the counts of inner_loops.py on a loop."""
import pathlib
import tempfile
import unittest

import inner_loops
import ptxas

REPORT = """ptxas info    : Compiling entry function '_Z4tilePf' for 'sm_90'
ptxas info    : Function properties for _Z4helpf
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Function properties for _Z4tilePf
    272 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 130 registers, used 1 barriers, 272 bytes cumulative stack size, 16896 bytes smem
"""
PTX = """.version 9.0
.visible .entry _Z4tilePf( .param .u64 p ) // a comment
.maxntid 128, 1, 1
{
  .reg .b32 %r<9>;
$L_1:
  ld.param.u64 %rd1, [p];
  mov.u32 %r1, %tid.x;
  ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r1];
  fma.rn.f32 %f5, %f1, %f2, %f5;
  @%p1 bra $L_2;
  ld.local.u64 %rd2, [%rd1];
  add.f32 %f5, %f5, %f1;
$L_2:
  setp.lt.s32 %p2, %r1, 8;
  st.shared.f32 [%r1], %f5;
  ld.global.v2.f32 {%f6, %f7}, [%rd1];
  @%p2 bra $L_1;
  ret;
}
"""
KEY = ("kernel", "_Z4tilePf")


class Registers(unittest.TestCase):
    def test_the_report_and_the_bounds_are_read(self):
        with tempfile.TemporaryDirectory() as folder:
            ptx = pathlib.Path(folder) / "tests/CMakeFiles/elinvar_ptx_90.dir/ops/kernel.ptx"
            ptx.parent.mkdir(parents=True)
            ptx.write_text(PTX)
            bounds = ptxas.bounds_of_build(pathlib.Path(folder))
            targets = ptxas.measured({"kernel": REPORT + REPORT.replace("sm_90", "sm_80").replace("130 reg", "128 reg")},
                                     bounds)
            rows = targets["sm_90"]
            self.assertEqual(rows, {KEY: (130, 16, 24, 16896, 128, 12)})
            self.assertEqual(targets["sm_80"], {KEY: (128, 16, 24, 16896, 128, 16)})
            table = pathlib.Path(folder) / "table.txt"
            table.write_text(ptxas.text_of_table("13.0.88", rows))
            self.assertEqual(ptxas.read_table(table), ("13.0.88", rows))

    def test_what_limits_occupancy(self):
        self.assertEqual(ptxas.occupancy("sm_90", 32, 0, 256), 64)  # the number of warps
        self.assertEqual(ptxas.occupancy("sm_90", 255, 0, 64), 8)  # registers
        self.assertEqual(ptxas.occupancy("sm_90", 16, 100 << 10, 256), 16)  # shared memory
        self.assertEqual(ptxas.occupancy("sm_90", 16, 0, 32), 32)  # blocks

    def test_spills_fail_and_registers_with_the_same_ptxas(self):
        was = {KEY: (64, 0, 0, 0, 256, 32)}
        more, spills = {KEY: (72, 0, 0, 0, 256, 24)}, {KEY: (64, 4, 0, 0, 256, 32)}
        self.assertEqual(ptxas.differences("1", was, "1", was), ([], 0))
        self.assertEqual(len(ptxas.differences("1", was, "1", more)[0]), 1)
        self.assertEqual(ptxas.differences("1", was, "2", more), ([], 1))
        self.assertEqual(len(ptxas.differences("1", was, "2", spills)[0]), 1)
        self.assertEqual(len(ptxas.differences("1", spills, "1", was)[0]), 1)  # fewer: the table is out of date
        self.assertEqual(len(ptxas.differences("1", was, "2", {})[0]), 1)
        product = {("matmul", "tiles"): (64, 4, 4, 0, 256, 32)}
        self.assertIn("spills", ptxas.differences("1", product, "1", product)[0][0])


class InnerLoops(unittest.TestCase):
    def test_what_a_loop_issues(self):
        (name, items), = inner_loops.kernels(PTX)
        (begin, end), = inner_loops.loops_of(items)
        loop = inner_loops.Loop(items[begin:end + 1])
        self.assertEqual(name, "_Z4tilePf")
        # Beside the counted ones: two branches and a comparison, but no move, parameter or block with local memory.
        self.assertEqual((loop.ffma, loop.lds, loop.sts, loop.ldg, loop.other), (1, 1, 1, 1, 3))
        self.assertEqual((loop.loaded, loop.stored, loop.global_bytes), (16, 4, 8))


if __name__ == "__main__":
    unittest.main()
