#pragma once
// A changed instruction, for mutants.py. ELINVAR_PTX_MUTANT="<file> <function> <number> <statements>" makes the decoder
// read these statements in place of an instruction; names and numbers are those of reach files (reach.h).
#include <string_view>
#include <vector>

#include "tests/ptx/text.h"

namespace elinvar::ptx {

// Changes the statements of a function, if the variable names it.
void apply_mutant(std::string_view file, std::string_view function, std::vector<Statement>& all);

}  // namespace elinvar::ptx
