#pragma once
// A function of PTX, ready to run. Names are resolved: a register is a row of the warp's register file, one value for
// each lane. Constants, special registers and addresses are rows too, filled in before the first instruction, so that
// an instruction has nothing to decide but where its rows are.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/ptx/memory.h"

namespace elinvar::ptx {

constexpr int kLanes = 32;
using Lanes = uint32_t;  // a set of lanes, one bit each
constexpr Lanes kAllLanes = ~Lanes{0};

struct Warp;
struct Instruction;
struct Function;
using Execute = void (*)(Warp&, const Instruction&, Lanes);

struct Instruction {
  enum class Kind : uint8_t {
    plain,      // each lane for itself
    converged,  // all lanes of a mask together: shuffles, products of matrices
    branch,
    exit,
    barrier,
    call
  };
  Execute execute = nullptr;
  Kind kind = Kind::plain;
  bool guard_negated = false;
  uint8_t elements = 1;          // of a vector that is loaded or stored
  bool wide_address = true;      // source[0] of an access has 64 bits
  mutable bool reached = false;  // some lane has executed it
  mutable Memory::Extent block;  // of global memory that it accessed last
  int guard = -1;                // predicate under which it is executed; -1: always
  std::array<int, 4> result{-1, -1, -1, -1};
  std::array<int, 10> source{};
  int members = -1;    // row of the lanes that take part in a converged instruction; -1: all
  int target = -1;     // of a branch
  int variant = 0;     // for instructions with few forms; of a call, its number
  int64_t offset = 0;  // bytes added to an address
};

// The rarely needed part of an instruction, stored separately so that instructions stay small and close in memory.
struct Origin {
  size_t line = 0;
  std::string text;
};
struct Call {
  std::shared_ptr<const Function> callee;
  std::vector<size_t> passed;  // where the arguments are among the warp's call_arguments
};

struct Parameter {
  std::string name;
  size_t bytes = 0, at = 0;
};

// The contents of a row before the first instruction.
struct InitialRow {
  enum class What { constant, thread, block, threads, blocks, lane, dynamic_shared, parameter, local, call_argument };
  int row = 0;
  size_t bytes = 4;  // of each lane: 4 or 8
  What what = What::constant;
  uint64_t value = 0;
};

struct Function {
  static inline std::atomic<uint64_t> count = 0;
  const uint64_t number = ++count;  // unlike its address, never used again
  std::string name, file;
  bool entry = true;
  std::vector<Parameter> parameters;
  size_t parameter_bytes = 0;
  std::vector<Instruction> code;  // the last one is an exit that the text does not have
  std::vector<Origin> origins;    // of each instruction
  std::vector<Call> calls;
  std::vector<std::vector<int>> lists;  // rows of instructions with more than they have room for
  std::vector<InitialRow> initial;
  std::vector<std::pair<int, bool>> constant_predicates;
  int rows = 0, predicates = 0;  // a row has 128 bytes; registers of 64 bits take two
  size_t local_bytes = 0;        // of each thread
  size_t shared_bytes = 0;       // static ones of a block
  size_t call_bytes = 0;         // of each thread, for arguments of calls
  unsigned max_threads = 1024;
  uint64_t launches = 0;
};

}  // namespace elinvar::ptx
