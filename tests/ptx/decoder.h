#pragma once
// Turns the text of a function into a Function: assigns rows to registers, resolves names, and finds the code that
// executes each instruction.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/ptx/program.h"
#include "tests/ptx/text.h"

namespace elinvar::ptx {

// The names of a module that its functions use.
struct ModuleNames {
  std::map<std::string, uint64_t> variables;    // addresses in global memory
  std::map<std::string, size_t> shared_arrays;  // those whose size the launch gives, with their alignment
  std::function<std::shared_ptr<const Function>(const std::string&)> function;  // returns null if it does not exist
};

class Decoder {
 public:
  Decoder(const ModuleNames& module, const ModuleText& text, const FunctionText& function);

  // Throws PtxError, which names the file, the line and the statement, for what the interpreter does not know.
  std::shared_ptr<Function> decode();

  // The row of a register, which must have this width, or of a constant or an address.
  int row(const std::string& operand, size_t bytes);
  int predicate(const std::string& operand);
  bool is_register(const std::string& operand) const;
  size_t bytes_of(const std::string& name) const;  // width of a register
  // Sets the offset of an operand "[%rd1+8]" and returns the row of its base.
  int address(const std::string& operand, Instruction& i);
  size_t call_argument(const std::string& name) const;
  std::shared_ptr<const Function> callee(const std::string& name) const;
  int add_call(Call call);              // returns its number
  int add_list(std::vector<int> rows);  // returns its number
  void branch_to(const std::string& label) { branches_.emplace_back(function_->code.size(), label); }

 private:
  struct Register {
    int row = 0;
    size_t bytes = 4;  // 0: a predicate
  };
  void read_head();
  void add(const Statement& s);
  void declare(const std::string& directive);
  void declare_registers(const std::string& directive);
  const Register& find_register(const std::string& name);
  int new_row(size_t bytes);
  int initial_row(size_t bytes, InitialRow::What what, uint64_t value);
  int symbol(const std::string& name, size_t bytes);

  const ModuleNames& module_;
  const ModuleText& text_;
  const FunctionText& source_;
  std::shared_ptr<Function> function_;
  std::unordered_map<std::string, size_t> declared_;  // bytes of registers, by name or by the letters of a numbered one
  std::unordered_map<std::string, Register> registers_;
  std::map<std::pair<uint64_t, size_t>, int> constants_;
  std::map<bool, int> constant_predicates_;
  std::unordered_map<std::string, int> symbols_;
  std::map<std::string, uint64_t> shared_;
  std::map<std::string, std::pair<size_t, size_t>> call_arguments_;  // place and size
  std::string local_name_;
  std::unordered_map<std::string, int> labels_;
  std::vector<std::pair<size_t, std::string>> branches_;
};

// "{%r1, %r2}" has two elements, "%r1" one.
std::vector<std::string> elements_of(const std::string& operand);

// Decodes one instruction (instructions.cpp). Throws PtxError if it is unknown.
Instruction decode_instruction(Decoder& decoder, const Statement& s);

}  // namespace elinvar::ptx
