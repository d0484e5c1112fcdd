#include "tests/support/amx_model.h"

#include <hwy/base.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tensor/base/check.h"
#include "tensor/pack.h"
#include "tensor/pair_kernel.h"
#include "tensor/quantized.h"

namespace elinvar {
namespace {
namespace amx_model {

using Sums = VectorOf<int32_t, 16>;

struct Registers {
  bool configured = false;
  TileShapes shapes;
  uint8_t bytes[8][16][64];
};
thread_local Registers registers;

// A register as the instructions see it. They fail if it is not configured.
struct Register {
  explicit Register(int tile)
      : bytes(registers.bytes[tile]), rows(registers.shapes.rows[tile]), width(registers.shapes.bytes[tile]) {
    invariant(registers.configured && rows > 0 && width > 0, "a tile register that is not configured");
  }
  uint8_t (*bytes)[64];
  int rows, width;
};

struct Tiles {
  static void configure(const TileShapes& shapes) {
    invariant(shapes.palette == 1 && shapes.start_row == 0, "the tiles of palette 1");
    for (int t = 0; t < 16; ++t)
      invariant(shapes.rows[t] <= (t < 8 ? 16 : 0) && shapes.bytes[t] <= (t < 8 ? 64 : 0), "tiles of 16 x 64 bytes");
    invariant(!registers.configured, "tiles that were released");
    registers = {.configured = true, .shapes = shapes, .bytes = {}};
  }
  static void release() { registers.configured = false; }
  template <int kTile>
  static void zero() {
    const Register r(kTile);
    std::memset(r.bytes, 0, sizeof(registers.bytes[kTile]));
  }
  template <int kTile>
  static void load(const void* from) {
    zero<kTile>();
    const Register r(kTile);
    for (int i = 0; i < r.rows; ++i)
      std::memcpy(r.bytes[i], static_cast<const uint8_t*>(from) + 64 * i, static_cast<size_t>(r.width));
  }
  template <int kTile>
  static void store(void* to) {
    const Register r(kTile);
    for (int i = 0; i < r.rows; ++i)
      std::memcpy(static_cast<uint8_t*>(to) + 64 * i, r.bytes[i], static_cast<size_t>(r.width));
  }
  // TDPBSSD, TDPBSUD, TDPBUSD and TDPBUUD: row k of B has four numbers along k of each column.
  template <int kSum, int kA, int kB, bool kSignedA, bool kSignedB>
  static void multiply_add() {
    const Register sum(kSum), a(kA), b(kB);
    invariant(a.rows == sum.rows && b.width == sum.width && 4 * b.rows == a.width, "tiles whose shapes match");
    for (int i = 0; i < sum.rows; ++i) {
      int32_t row[16];
      std::memcpy(row, sum.bytes[i], sizeof(row));
      for (int k = 0; k < b.rows; ++k)
        for (int j = 0; j < sum.width / 4; ++j)
          for (int e = 0; e < 4; ++e)
            row[j] += value<kSignedA>(a.bytes[i][4 * k + e]) * value<kSignedB>(b.bytes[k][4 * j + e]);
      std::memcpy(sum.bytes[i], row, static_cast<size_t>(sum.width));
    }
  }

 private:
  template <bool kSigned>
  static int32_t value(uint8_t byte) {
    return kSigned ? int32_t{static_cast<int8_t>(byte)} : int32_t{byte};
  }
};

#include "tensor/pair_sums.inc"

#include "tensor/byte_tile.inc"

}  // namespace amx_model
}  // namespace

void test::use_units(PairUnits most) {
  use_pair_units(most);
  use_pair_kernel(most == PairUnits::tiles && !has_pair_tiles() ? &amx_model::kKernel : nullptr);
}

void test::use_best_units() {
  use_pair_units(PairUnits::tiles);
  use_pair_kernel(nullptr);
}

const char* test::name_of(PairUnits units) {
  switch (units) {
    case PairUnits::vectors:
      return "vectors";
    case PairUnits::dot_products:
      return "dot products";
    case PairUnits::tiles:
      break;
  }
  return "tiles";
}

}  // namespace elinvar
