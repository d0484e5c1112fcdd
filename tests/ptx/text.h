#pragma once
// The text of a PTX file, cut into functions and statements. Nothing is interpreted here but the punctuation.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar::ptx {

// One directive (".reg .b32 %r<5>"), label ("$L_1:") or instruction, in which white space is single spaces.
struct Statement {
  std::string text;
  size_t line = 0;
  std::string guard;   // "%p1", "!%p1", or empty
  std::string opcode;  // "ld.global.v2.f32"; empty for directives and labels
  std::vector<std::string> operands;

  bool is_label() const { return text[0] == '$'; }
  bool is_directive() const { return text[0] == '.'; }
};

struct FunctionText {
  std::string name;
  bool entry = false;  // a kernel; else a function that kernels call
  size_t line = 0;
  std::string head;       // from ".entry" to the brace, with single spaces
  std::string_view body;  // between the braces
};

struct ModuleText {
  std::string file;    // the name without folder and extension
  std::string target;  // "sm_90"
  std::shared_ptr<const std::string> text;
  std::vector<std::string> variables;  // ".global ..", ".extern .shared ..", with single spaces
  std::vector<FunctionText> functions;
};

// Throws PtxError if the file cannot be read or is not PTX.
ModuleText read_module(const std::string& path);
ModuleText parse_module(std::string file, std::string text);

std::vector<Statement> statements(const FunctionText& function);

// Splits at commas outside of brackets and braces: "{%r1, %r2}, [%rd1+4]" has two parts.
std::vector<std::string> split_operands(std::string_view list);

// The name of a kernel without the numbers that nvcc puts into unnamed namespaces and that differ between two
// compilations of one file: "_GLOBAL__N__<hash>_<length>_<file>_cu_<hash>_<number>" becomes "<file>".
std::string name_without_build(std::string_view mangled);

}  // namespace elinvar::ptx
