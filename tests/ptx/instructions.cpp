// Finds the code that executes an instruction: an Operation if each lane computes from its own values, else the decoder
// of its family.
#include <map>
#include <string>

#include "tests/ptx/access.h"
#include "tests/ptx/decoder.h"
#include "tests/ptx/exchange.h"
#include "tests/ptx/failure.h"
#include "tests/ptx/operation.h"

namespace elinvar::ptx {
namespace {

using Kind = Instruction::Kind;
using Decode = bool (*)(Decoder&, const Statement&, Instruction&);

bool decode_branch(Decoder& decoder, const Statement& s, Instruction& i) {
  if (s.opcode != "bra" && s.opcode != "bra.uni") return false;
  i.kind = Kind::branch;
  decoder.branch_to(s.operands.at(0));
  return true;
}

bool decode_exit(Decoder&, const Statement& s, Instruction& i) {
  i.kind = Kind::exit;
  return s.operands.empty();
}

bool decode_barrier(Decoder&, const Statement& s, Instruction& i) {
  i.kind = Kind::barrier;
  return s.opcode == "bar.sync" && s.operands.size() == 1 && s.operands[0] == "0";
}

// "call.uni f, (param0, param1)": arguments without a result.
bool decode_call(Decoder& decoder, const Statement& s, Instruction& i) {
  if (s.operands.size() != 2 || s.operands[1][0] != '(') return false;
  i.kind = Kind::call;
  Call call{.callee = decoder.callee(s.operands[0]), .passed = {}};
  const std::string& list = s.operands[1];
  for (const std::string& name : split_operands(std::string_view(list).substr(1, list.size() - 2)))
    call.passed.push_back(decoder.call_argument(name));
  if (call.passed.size() != call.callee->parameters.size()) return false;
  i.variant = decoder.add_call(std::move(call));
  return true;
}

// Two halves become one register, or one register two halves.
template <class Whole, class Half>
void join(Warp& warp, const Instruction& i, Lanes lanes) {
  const Stored<Half>*const low = warp.row<Stored<Half>>(i.source[0]), *const high = warp.row<Stored<Half>>(i.source[1]);
  Whole* const to = warp.row<Whole>(i.result[0]);
  each_lane(lanes, [&](int lane) {
    to[lane] = static_cast<Whole>(static_cast<Whole>(static_cast<Half>(high[lane])) << (4 * sizeof(Whole)) |
                                  static_cast<Half>(low[lane]));
  });
}
template <class Whole, class Half>
void part(Warp& warp, const Instruction& i, Lanes lanes) {
  const Whole* const from = warp.row<Whole>(i.source[0]);
  for (size_t k = 0; k < 2; ++k) {
    if (i.result[k] < 0) continue;
    Stored<Half>* const to = warp.row<Stored<Half>>(i.result[k]);
    each_lane(lanes, [&](int lane) { to[lane] = static_cast<Half>(from[lane] >> (4 * sizeof(Whole) * k)); });
  }
}

bool decode_vector_move(Decoder& decoder, const Statement& s, Instruction& i) {
  if (s.operands.size() != 2 || (s.opcode != "mov.b32" && s.opcode != "mov.b64")) return false;
  const size_t whole = s.opcode == "mov.b32" ? 4 : 8, half = 4;  // halves of 16 bits are in registers of 32
  const std::vector<std::string> to = elements_of(s.operands[0]), from = elements_of(s.operands[1]);
  if (from.size() == 2 && to.size() == 1) {
    i.execute = whole == 4 ? join<uint32_t, uint16_t> : join<uint64_t, uint32_t>;
    i.result[0] = decoder.row(to[0], whole);
    for (size_t k = 0; k < 2; ++k) i.source[k] = decoder.row(from[k], half);
    return true;
  }
  if (from.size() != 1 || to.size() != 2) return false;
  i.execute = whole == 4 ? part<uint32_t, uint16_t> : part<uint64_t, uint32_t>;
  i.source[0] = decoder.row(from[0], whole);
  for (size_t k = 0; k < 2; ++k)
    if (to[k] != "_") i.result[k] = decoder.row(to[k], half);
  return true;
}

const Operations& operations() {
  static const Operations all = [] {
    Operations made;
    add_integer_operations(made);
    add_bit_operations(made);
    add_floating_operations(made);
    add_conversions(made);
    return made;
  }();
  return all;
}

bool decode_operation(Decoder& decoder, const Statement& s, Instruction& i) {
  const bool wide = s.opcode.starts_with("cvt.") && s.operands.size() == 2 && decoder.is_register(s.operands[1]) &&
                    decoder.bytes_of(s.operands[1]) == 8 && !s.opcode.ends_with("64");
  const auto found = operations().find(wide ? s.opcode + kFromWide : s.opcode);
  if (found == operations().end()) return false;
  const Operation& operation = found->second;
  if (s.operands.size() != 1 + operation.source_bytes.size()) return false;
  for (const std::string& operand : s.operands)
    if (operand[0] == '{') return false;
  const auto place = [&](const std::string& operand, size_t bytes) {
    return bytes == 0 ? decoder.predicate(operand) : decoder.row(operand, bytes);
  };
  i.execute = operation.execute;
  i.result[0] = place(s.operands[0], operation.result_bytes);
  for (size_t k = 0; k < operation.source_bytes.size(); ++k)
    i.source[k] = place(s.operands[1 + k], operation.source_bytes[k]);
  return true;
}

bool decode_special(Decoder& decoder, const Statement& s, Instruction& i) {
  static const std::map<std::string, Decode> all = {
      {"bra", decode_branch},
      {"ret", decode_exit},
      {"exit", decode_exit},
      {"bar", decode_barrier},
      {"call", decode_call},
      {"mov", decode_vector_move},
      {"ld", decode_access},
      {"st", decode_access},
      {"atom", decode_atomic},
      {"shfl", decode_shuffle},
      {"ldmatrix", decode_matrix_load},
      {"mma", decode_product},
      {"cp", decode_async_copy},
      {"wgmma", decode_warpgroup},
      {"fence", decode_proxy_fence},
  };
  const auto found = all.find(s.opcode.substr(0, s.opcode.find('.')));
  return found != all.end() && found->second(decoder, s, i);
}

}  // namespace

Instruction decode_instruction(Decoder& decoder, const Statement& s) {
  Instruction i;
  if (!s.guard.empty()) {
    i.guard_negated = s.guard[0] == '!';
    i.guard = decoder.predicate(s.guard.substr(i.guard_negated ? 1 : 0));
  }
  if (!decode_operation(decoder, s, i) && !decode_special(decoder, s, i)) throw PtxError("unknown instruction");
  return i;
}

}  // namespace elinvar::ptx
