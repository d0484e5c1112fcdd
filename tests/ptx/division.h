#pragma once
// Divisions of 64-bit integers. In front of each, nvcc puts a shorter division of 32 bits for operands without upper
// halves. With ELINVAR_PTX_DIVISION=both, odd lanes take the long one for all operands, which has the same result:
// tests with small tensors reach it.
#include <span>

#include "tests/ptx/program.h"
#include "tests/ptx/text.h"

namespace elinvar::ptx {

// Makes an instruction choose the long division in odd lanes, if the variable says so and the statements begin with
// nvcc's choice: "and.b64 %rd3, %rd2, -4294967296; setp.eq.s64 %p1, %rd3, 0; @%p1 bra $L__BB0_2".
void divide_both_ways(Instruction& i, std::span<const Statement> rest);

}  // namespace elinvar::ptx
