// Products of a warpgroup, four warps (wgmma, compute capability 9.0 only). Of D (64, N) += A (64, 32) B (32, N) with
// integers of 8 bits, each warp computes 16 rows, so warps need not run together. The factors are matrices in shared
// memory, along k.
//
// A product is computed when its group is waited for, as late as it may be, so that shared memory that is overwritten
// too early and registers that are read too early give wrong results.
#include <cstdint>
#include <cstring>

#include "tests/ptx/access.h"
#include "tests/ptx/exchange.h"
#include "tests/ptx/failure.h"
#include "tests/ptx/operation.h"
#include "tests/ptx/races.h"

namespace elinvar::ptx {
namespace {

constexpr size_t kDeep = 32;  // bytes along k

// A matrix in shared memory without a swizzle: eight lines of 16 bytes along k are adjacent.
class Matrix {
 public:
  explicit Matrix(uint64_t descriptor)
      : at_(part(descriptor, 0)), next_chunk_(part(descriptor, 16)), next_lines_(part(descriptor, 32)) {
    if (descriptor >> 46 != 0) throw Fault("a matrix with a swizzle or a base offset");
  }
  uint32_t chunk(uint32_t line, uint32_t chunk) const {
    return at_ + line / 8 * next_lines_ + line % 8 * 16 + chunk * next_chunk_;
  }

 private:
  static uint32_t part(uint64_t descriptor, int bit) { return static_cast<uint32_t>(descriptor >> bit & 0x3fff) << 4; }
  uint32_t at_, next_chunk_, next_lines_;  // bytes
};

// Reads a line of a matrix. The lane is the one that a race is reported for.
void read_line(Warp& warp, const Matrix& matrix, uint32_t line, int8_t (&to)[kDeep]) {
  for (uint32_t chunk = 0; chunk < kDeep / 16; ++chunk) {
    const unsigned char* const place = shared_place(warp, matrix.chunk(line, chunk), 16);
    if (warp.block->races) warp.block->races->access(warp, 0, place, 16, true, Access::read);
    std::memcpy(to + 16 * chunk, place, 16);
  }
}

void multiply(Warp& warp, const WarpgroupProduct& product) {
  const std::vector<int>& sums = *product.sums;
  const Matrix a(product.a), b(product.b);
  const uint32_t first = warp.first_thread / kLanes % 4 * 16;
  int8_t rows[16][kDeep];
  for (uint32_t row = 0; row < 16; ++row) read_line(warp, a, first + row, rows[row]);
  for (size_t column = 0; column < 2 * sums.size(); ++column) {
    int8_t of_b[kDeep];
    read_line(warp, b, static_cast<uint32_t>(column), of_b);
    for (size_t row = 0; row < 16; ++row) {
      int32_t sum = 0;
      for (size_t k = 0; k < kDeep; ++k) sum += int32_t{rows[row][k]} * of_b[k];
      // Lane 4 g + t has rows g and g + 8, columns 2 t and 2 t + 1 of each eight.
      warp.row<uint32_t>(sums[column / 8 * 4 + row / 8 * 2 + column % 2])[row % 8 * 4 + column % 8 / 2] +=
          static_cast<uint32_t>(sum);
    }
  }
}

uint64_t of_all_lanes(Warp& warp, int row) {
  const uint64_t* const values = warp.row<uint64_t>(row);
  for (int lane = 1; lane < kLanes; ++lane)
    if (values[lane] != values[0]) throw Fault("lanes have different descriptors");
  return values[0];
}

void begin_product(Warp& warp, const Instruction& i, Lanes lanes) {
  if (lanes != kAllLanes) throw Fault("not by a whole warp");
  warp.products.push_back({&warp.function->lists[static_cast<size_t>(i.variant)], of_all_lanes(warp, i.source[0]),
                           of_all_lanes(warp, i.source[1]), false});
}

void end_group(Warp& warp, const Instruction&, Lanes) {
  if (!warp.products.empty()) warp.products.back().last_of_group = true;
}

// Computes all groups but the last `variant` ones.
void wait_for_groups(Warp& warp, const Instruction& i, Lanes) {
  size_t groups = 0, done = 0;
  for (const WarpgroupProduct& product : warp.products) groups += product.last_of_group;
  for (; groups > static_cast<size_t>(i.variant); ++done) {
    multiply(warp, warp.products[done]);
    groups -= warp.products[done].last_of_group;
  }
  warp.products.erase(warp.products.begin(), warp.products.begin() + static_cast<ptrdiff_t>(done));
}

void order(Warp&, const Instruction&, Lanes) {}

}  // namespace

bool decode_proxy_fence(Decoder&, const Statement& s, Instruction& i) {
  i.execute = order;
  return s.opcode == "fence.proxy.async.shared::cta" && s.operands.empty();
}

// "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 {%r1, ..}, %rd1, %rd2, 1", "wgmma.fence", "wgmma.commit_group" and
// "wgmma.wait_group".
bool decode_warpgroup(Decoder& decoder, const Statement& s, Instruction& i) {
  i.kind = Instruction::Kind::converged;
  if (s.opcode == "wgmma.fence.sync.aligned") {
    i.execute = order;
    return s.operands.empty();
  }
  if (s.opcode == "wgmma.commit_group.sync.aligned") {
    i.execute = end_group;
    return s.operands.empty();
  }
  if (s.opcode == "wgmma.wait_group.sync.aligned") {
    i.execute = wait_for_groups;
    return s.operands.size() == 1 && read_count(s.operands[0], i.variant);
  }
  if (s.opcode != "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8" || s.operands.size() != 4 || s.operands[3] != "1")
    return false;
  std::vector<int> sums;
  for (const std::string& name : elements_of(s.operands[0])) sums.push_back(decoder.row(name, 4));
  if (sums.size() != 64) return false;
  i.variant = decoder.add_list(std::move(sums));
  for (size_t k = 0; k < 2; ++k) i.source[k] = decoder.row(s.operands[1 + k], 8);
  i.execute = begin_product;
  return true;
}

}  // namespace elinvar::ptx
