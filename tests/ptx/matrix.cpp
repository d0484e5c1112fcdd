// Products of matrices on tensor cores, and the loads of their factors. A warp holds a matrix in fragments: lane 4 g +
// t has elements of row g and columns 2 t and 2 t + 1.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string_view>

#include "tests/ptx/access.h"
#include "tests/ptx/exchange.h"
#include "tests/ptx/failure.h"
#include "tests/ptx/floating.h"
#include "tests/ptx/operation.h"
#include "tests/ptx/races.h"

namespace elinvar::ptx {
namespace {

void expect_whole_warp(Lanes lanes) {
  if (lanes != kAllLanes) throw Fault("not by a whole warp");
}

// Four matrices of 8 x 8 elements of 16 bits; lane 8 j + r has the address of row r of matrix j.
void load_matrices(Warp& warp, const Instruction& i, Lanes lanes) {
  expect_whole_warp(lanes);
  const Addresses rows = locate(warp, i, lanes, Space::shared, 16, Access::read);
  const auto element = [&](size_t matrix, size_t row, size_t column) {
    uint16_t value;
    std::memcpy(&value, reinterpret_cast<const unsigned char*>(rows[8 * matrix + row]) + 2 * column, sizeof value);
    return uint32_t{value};
  };
  const bool transposed = i.variant != 0;
  for (size_t j = 0; j < 4; ++j) {
    uint32_t* const to = warp.row<uint32_t>(i.result[j]);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const size_t g = lane / 4, t = 2 * (lane % 4);
      to[lane] =
          transposed ? element(j, t, g) | element(j, t + 1, g) << 16 : element(j, g, t) | element(j, g, t + 1) << 16;
    }
  }
}

// D = A B + C with A of 16 x 16 and B of 16 x 8 bfloat16 numbers. NVIDIA does not specify which bits of the terms a GPU
// keeps. Here they are added one by one, rounded to float32, as on the emulated GPU (tensor/cuda/tensor_core.h).
void multiply(Warp& warp, const Instruction& i, Lanes lanes) {
  expect_whole_warp(lanes);
  float a[16][16], b[16][8], c[16][8];
  const auto half = [&](size_t source, size_t lane, size_t k) {
    return float_of_bf16(warp.row<uint32_t>(i.source[source])[lane] >> (16 * k) & 0xffff);
  };
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const size_t g = lane / 4, t = 2 * (lane % 4);
    for (size_t part = 0; part < 4; ++part) {
      for (size_t k = 0; k < 2; ++k) a[g + part % 2 * 8][t + k + part / 2 * 8] = half(part, lane, k);
      c[g + part / 2 * 8][t + part % 2] = warp.row<float>(i.source[6 + part])[lane];
    }
    for (size_t part = 0; part < 2; ++part)
      for (size_t k = 0; k < 2; ++k) b[t + k + part * 8][g] = half(4 + part, lane, k);
  }
  for (size_t row = 0; row < 16; ++row)
    for (size_t k = 0; k < 16; ++k)
      for (size_t column = 0; column < 8; ++column) c[row][column] = std::fma(a[row][k], b[k][column], c[row][column]);
  for (size_t part = 0; part < 4; ++part) {
    float* const to = warp.row<float>(i.result[part]);
    for (size_t lane = 0; lane < kLanes; ++lane)
      to[lane] = canonical(c[lane / 4 + part / 2 * 8][2 * (lane % 4) + part % 2]);
  }
}

// D = A B + C with A of 16 x 32 and B of 32 x 8 integers of 8 bits. A register has four neighbours along k. Bit 0 of
// the variant says that A has no sign, bit 1 that B has none. Sums wrap around.
void multiply_integers(Warp& warp, const Instruction& i, Lanes lanes) {
  expect_whole_warp(lanes);
  int32_t a[16][32], b[8][32];  // b by columns
  uint32_t c[16][8];
  const auto byte = [&](size_t source, size_t lane, size_t k) {
    const auto bits = static_cast<uint8_t>(warp.row<uint32_t>(i.source[source])[lane] >> (8 * k));
    return (i.variant >> (source < 4 ? 0 : 1) & 1) != 0 ? int32_t{bits} : int32_t{static_cast<int8_t>(bits)};
  };
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const size_t g = lane / 4, t = lane % 4;
    for (size_t part = 0; part < 4; ++part) {
      for (size_t k = 0; k < 4; ++k) a[g + part % 2 * 8][4 * t + k + part / 2 * 16] = byte(part, lane, k);
      c[g + part / 2 * 8][2 * t + part % 2] = warp.row<uint32_t>(i.source[6 + part])[lane];
    }
    for (size_t part = 0; part < 2; ++part)
      for (size_t k = 0; k < 4; ++k) b[g][4 * t + k + part * 16] = byte(4 + part, lane, k);
  }
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column) {
      int32_t sum = 0;
      for (size_t k = 0; k < 32; ++k) sum += a[row][k] * b[column][k];
      c[row][column] += static_cast<uint32_t>(sum);
    }
  for (size_t part = 0; part < 4; ++part) {
    uint32_t* const to = warp.row<uint32_t>(i.result[part]);
    for (size_t lane = 0; lane < kLanes; ++lane) to[lane] = c[lane / 4 + part / 2 * 8][2 * (lane % 4) + part % 2];
  }
}

// Copies have been made when the thread has waited. Until then the target is NaN.
void begin_copies(Warp& warp, const Instruction& i, Lanes lanes) {
  const uint32_t* const to = warp.row<uint32_t>(i.source[0]);
  const uint64_t* const from = warp.row<uint64_t>(i.source[1]);
  const uint32_t* const given = warp.row<uint32_t>(i.source[2]);
  each_lane(lanes, [&](int lane) {
    const auto bytes = static_cast<size_t>(i.variant);
    unsigned char* const place =
        shared_place(warp, static_cast<uint32_t>(to[lane] + static_cast<uint64_t>(i.offset)), bytes);
    if (warp.block->races) warp.block->races->access(warp, lane, place, bytes, true, Access::write);
    std::memset(place, 0xff, bytes);
    if (given[lane] > bytes) throw Fault("a copy of more bytes than it says");
    const unsigned char* source = nullptr;
    if (given[lane] != 0) source = global_place(warp, from[lane], bytes, given[lane], i);
    if (warp.block->races && source) warp.block->races->access(warp, lane, source, given[lane], false, Access::read);
    warp.copies[lane].push_back({place, source, given[lane], bytes});
  });
}

void end_copy_group(Warp& warp, const Instruction&, Lanes lanes) {
  each_lane(lanes, [&](int lane) { warp.copies[lane].push_back({.bytes = 0, .last_of_group = true}); });
}

// Ends all copies, or all groups but the last `variant` ones if that is not negative.
void wait_for_copies(Warp& warp, const Instruction& i, Lanes lanes) {
  each_lane(lanes, [&](int lane) {
    std::vector<AsyncCopy>& copies = warp.copies[lane];
    auto groups = std::ranges::count(copies, true, &AsyncCopy::last_of_group);
    size_t done = 0;
    for (; i.variant < 0 ? done < copies.size() : groups > i.variant; ++done) {
      const AsyncCopy& copy = copies[done];
      groups -= copy.last_of_group;
      if (copy.bytes == 0) continue;
      if (warp.block->races) warp.block->races->access(warp, lane, copy.to, copy.bytes, true, Access::write);
      std::memset(copy.to, 0, copy.bytes);
      if (copy.given != 0) std::memcpy(copy.to, copy.from, copy.given);
    }
    copies.erase(copies.begin(), copies.begin() + static_cast<ptrdiff_t>(done));
  });
}

}  // namespace

bool read_count(const std::string& operand, int& count) {
  const char* const end = operand.data() + operand.size();
  const auto [read, error] = std::from_chars(operand.data(), end, count);
  return error == std::errc() && read == end && count >= 0;
}

bool decode_matrix_load(Decoder& decoder, const Statement& s, Instruction& i) {
  const bool transposed = s.opcode == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16";
  if ((!transposed && s.opcode != "ldmatrix.sync.aligned.m8n8.x4.shared.b16") || s.operands.size() != 2) return false;
  const std::vector<std::string> results = elements_of(s.operands[0]);
  if (results.size() != 4) return false;
  i.kind = Instruction::Kind::converged;
  i.execute = load_matrices;
  i.variant = transposed;
  for (size_t k = 0; k < 4; ++k) i.result[k] = decoder.row(results[k], 4);
  i.source[0] = decoder.address(s.operands[1], i);
  return true;
}

bool decode_product(Decoder& decoder, const Statement& s, Instruction& i) {
  constexpr std::string_view kOfIntegers[] = {
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32",
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"};
  const auto* const found = std::find(std::begin(kOfIntegers), std::end(kOfIntegers), s.opcode);
  const bool integers = found != std::end(kOfIntegers);
  if (integers) i.variant = static_cast<int>(found - std::begin(kOfIntegers));
  if ((!integers && s.opcode != "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") || s.operands.size() != 4)
    return false;
  constexpr size_t kParts[] = {4, 4, 2, 4};
  size_t source = 0;
  for (size_t k = 0; k < 4; ++k) {
    const std::vector<std::string> parts = elements_of(s.operands[k]);
    if (parts.size() != kParts[k]) return false;
    for (size_t part = 0; part < parts.size(); ++part)
      (k == 0 ? i.result[part] : i.source[source++]) = decoder.row(parts[part], 4);
  }
  i.kind = Instruction::Kind::converged;
  i.execute = integers ? multiply_integers : multiply;
  return true;
}

// "cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16, %r2": %r2 bytes are copied, and the rest is zero. Copies of 4
// bytes are "cp.async.ca.shared.global".
bool decode_async_copy(Decoder& decoder, const Statement& s, Instruction& i) {
  if (s.opcode == "cp.async.wait_all") {
    i.variant = -1;
    i.execute = wait_for_copies;
    return s.operands.empty();
  }
  if (s.opcode == "cp.async.commit_group") {
    i.execute = end_copy_group;
    return s.operands.empty();
  }
  if (s.opcode == "cp.async.wait_group") {
    i.execute = wait_for_copies;
    return s.operands.size() == 1 && read_count(s.operands[0], i.variant);
  }
  const bool whole = s.opcode.starts_with("cp.async.cg.shared.global");
  if ((!whole && !s.opcode.starts_with("cp.async.ca.shared.global")) || s.operands.size() < 3 ||
      s.operands[2] != (whole ? "16" : "4"))
    return false;
  i.variant = whole ? 16 : 4;
  i.source[1] = decoder.address(s.operands[1], i);
  if (i.offset != 0) return false;
  i.source[0] = decoder.address(s.operands[0], i);
  if (i.wide_address) return false;
  i.source[2] = decoder.row(s.operands.size() > 3 ? s.operands[3] : s.operands[2], 4);
  i.execute = begin_copies;
  return true;
}

}  // namespace elinvar::ptx
