// shfl.sync: each lane reads a register of another one.
#include <array>
#include <cstdint>

#include "tests/ptx/exchange.h"
#include "tests/ptx/failure.h"
#include "tests/ptx/operation.h"

namespace elinvar::ptx {
namespace {

enum Mode { up, down, butterfly, index };

// The lane that `lane` reads, and whether it is in its segment; a lane reads itself if not.
std::pair<int, bool> lane_read(Mode mode, int lane, uint32_t by, uint32_t clamp_and_segment) {
  const int b = static_cast<int>(by & 31), clamp = static_cast<int>(clamp_and_segment & 31),
            segment = static_cast<int>(clamp_and_segment >> 8 & 31);
  const int first = lane & segment, last = first | (clamp & ~segment & 31);
  int other = 0;
  switch (mode) {
    case up:
      return lane - b >= last ? std::pair(lane - b, true) : std::pair(lane, false);
    case down:
      other = lane + b;
      break;
    case butterfly:
      other = lane ^ b;
      break;
    case index:
      other = first | (b & ~segment & 31);
      break;
  }
  return other <= last ? std::pair(other, true) : std::pair(lane, false);
}

void shuffle(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint32_t *const from = warp.row<uint32_t>(i.source[0]), *const by = warp.row<uint32_t>(i.source[1]),
                        *const segments = warp.row<uint32_t>(i.source[2]);
  std::array<uint32_t, kLanes> read{};
  Lanes in_segment = 0;
  each_lane(lanes, [&](int lane) {
    const auto [other, valid] = lane_read(static_cast<Mode>(i.variant), lane, by[lane], segments[lane]);
    if (!(lanes >> other & 1)) throw Fault("a shuffle reads lane " + std::to_string(other) + ", which takes no part");
    read[static_cast<size_t>(lane)] = from[other];
    in_segment |= Lanes{valid} << lane;
  });
  uint32_t* const to = warp.row<uint32_t>(i.result[0]);
  each_lane(lanes, [&](int lane) { to[lane] = read[static_cast<size_t>(lane)]; });
  if (i.result[1] < 0) return;
  Lanes& predicate = warp.predicates[static_cast<size_t>(i.result[1])];
  predicate = (predicate & ~lanes) | in_segment;
}

}  // namespace

bool decode_shuffle(Decoder& decoder, const Statement& s, Instruction& i) {
  static const std::map<std::string, Mode> modes = {{"shfl.sync.up.b32", up},
                                                    {"shfl.sync.down.b32", down},
                                                    {"shfl.sync.bfly.b32", butterfly},
                                                    {"shfl.sync.idx.b32", index}};
  const auto mode = modes.find(s.opcode);
  if (mode == modes.end() || s.operands.size() != 5) return false;
  i.kind = Instruction::Kind::converged;
  i.execute = shuffle;
  i.variant = mode->second;
  const std::string& results = s.operands[0];
  const size_t bar = results.find('|');
  i.result[0] = decoder.row(results.substr(0, bar), 4);
  if (bar != std::string::npos) i.result[1] = decoder.predicate(results.substr(bar + 1));
  for (size_t k = 0; k < 3; ++k) i.source[k] = decoder.row(s.operands[1 + k], 4);
  i.members = decoder.row(s.operands[4], 4);
  return true;
}

}  // namespace elinvar::ptx
