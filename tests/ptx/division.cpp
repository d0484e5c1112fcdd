#include "tests/ptx/division.h"

#include <cstdlib>
#include <string_view>

#include "tests/ptx/operation.h"

namespace elinvar::ptx {
namespace {

// The upper half of both operands: of odd lanes never zero.
void upper_halves(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint64_t* const operands = warp.row<uint64_t>(i.source[0]);
  uint64_t* const halves = warp.row<uint64_t>(i.result[0]);
  each_lane(lanes, [&](int lane) { halves[lane] = (operands[lane] >> 32 | (lane & 1)) << 32; });
}

}  // namespace

void divide_both_ways(Instruction& i, std::span<const Statement> rest) {
  static const bool both = [] {
    const char* const variable = std::getenv("ELINVAR_PTX_DIVISION");
    return variable != nullptr && std::string_view(variable) == "both";
  }();
  if (!both || rest.size() < 3 || rest[0].opcode != "and.b64" || rest[0].operands[2] != "-4294967296") return;
  const Statement &compare = rest[1], &jump = rest[2];
  if (compare.opcode == "setp.eq.s64" && compare.operands[1] == rest[0].operands[0] && compare.operands[2] == "0" &&
      jump.opcode == "bra" && jump.guard == compare.operands[0])
    i.execute = upper_halves;
}

}  // namespace elinvar::ptx
