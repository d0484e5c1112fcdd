#include "tensor/pair_tile.h"

#include <cpuid.h>
#include <hwy/cache_control.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "tensor/isa.h"
#include "tensor/quantized.h"

namespace elinvar {
namespace {

// The functions of one set of instructions.
struct PairKernel {
  void (*multiply)(const Tile<Pair>&);
  TileExtent (*extent)(int64_t columns);
  void (*finish)(const double*, int64_t, int32_t, const int32_t*, const float*, float*);
};

// Two products of each of 16 pairs are below 2^31 - 2^16 (static_assert), so that many can be added to a carried sum.
constexpr int64_t kPairsPerCarry = 16;
static_assert(2 * kPairsPerCarry * kMostQuantized * kMostQuantized + 0xffff <= INT32_MAX);

#define ELINVAR_INLINE __attribute__((always_inline))

template <class T, int kLanes>
using VectorOf __attribute__((vector_size(kLanes * sizeof(T)))) = T;

// Registers: 32 hold 8 x 3 or 6 x 4 sums along with the vectors of B and one of A, 16 hold 6 x 2. High parts are in
// memory.
namespace scalar {
using Sums = VectorOf<int32_t, 1>;
HWY_INLINE Sums add_products(Sums sums, Sums a, Sums b) {
  const auto x = std::bit_cast<Pair>(a[0]), y = std::bit_cast<Pair>(b[0]);
  return sums + (x.first * y.first + x.second * y.second);
}
constexpr int kRows = 6, kVectors = 2, kWideRows = kRows, kWideVectors = kVectors;
#include "tensor/pair_tile.inc"
}  // namespace scalar

HWY_PUSH_ATTRIBUTES("avx2,fma")
namespace avx2 {
using Sums = VectorOf<int32_t, 8>;
HWY_INLINE Sums add_products(Sums sums, Sums a, Sums b) {
  return sums + (Sums)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
constexpr int kRows = 6, kVectors = 2, kWideRows = kRows, kWideVectors = kVectors;
#include "tensor/pair_tile.inc"
}  // namespace avx2
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,avxvnni")
namespace avx_vnni {
using Sums = VectorOf<int32_t, 8>;
HWY_INLINE Sums add_products(Sums sums, Sums a, Sums b) {
  return (Sums)_mm256_dpwssd_avx_epi32((__m256i)sums, (__m256i)a, (__m256i)b);
}
constexpr int kRows = 6, kVectors = 2, kWideRows = kRows, kWideVectors = kVectors;
#include "tensor/pair_tile.inc"
}  // namespace avx_vnni
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw")
namespace avx512 {
using Sums = VectorOf<int32_t, 16>;
HWY_INLINE Sums add_products(Sums sums, Sums a, Sums b) {
  return sums + (Sums)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}
constexpr int kRows = 8, kVectors = 3, kWideRows = 6, kWideVectors = 4;
#include "tensor/pair_tile.inc"
}  // namespace avx512
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")
namespace avx512_vnni {
using Sums = VectorOf<int32_t, 16>;
HWY_INLINE Sums add_products(Sums sums, Sums a, Sums b) {
  return (Sums)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)a, (__m512i)b);
}
constexpr int kRows = 8, kVectors = 3, kWideRows = 6, kWideVectors = 4;
#include "tensor/pair_tile.inc"
}  // namespace avx512_vnni
HWY_POP_ATTRIBUTES

bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1u << 4) != 0;
}

bool& dot_products() {
  static bool used = true;
  return used;
}

const PairKernel& kernel() {
  static const bool has_256 = has_avx_vnni(), has_512 = __builtin_cpu_supports("avx512vnni");
  switch (current_isa()) {
    case Isa::avx512:
      return has_512 && dot_products() ? avx512_vnni::kKernel : avx512::kKernel;
    case Isa::avx2:
      return has_256 && dot_products() ? avx_vnni::kKernel : avx2::kKernel;
    case Isa::scalar:
      break;
  }
  return scalar::kKernel;
}

}  // namespace

void use_dot_products(bool use) { dot_products() = use; }

TileExtent tile_extent(Pair, int64_t columns) { return kernel().extent(columns); }
void multiply_tile(const Tile<Pair>& tile) { kernel().multiply(tile); }
void finish_sums(const double* sums, int64_t count, int32_t row_exponent, const int32_t* column_exponents,
                 const float* bias, float* c) {
  kernel().finish(sums, count, row_exponent, column_exponents, bias, c);
}

}  // namespace elinvar
