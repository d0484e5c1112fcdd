#include "tensor/pair_tile.h"

#include <cpuid.h>
#include <hwy/cache_control.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/carries.h"
#include "tensor/isa.h"
#include "tensor/pack.h"
#include "tensor/pair_kernel.h"
#include "tensor/quantized.h"

namespace elinvar {
namespace {

static_assert(2 * kPairsPerCarry * kMostQuantized * kMostQuantized <= kMostSum);

// Registers: 32 hold 8 x 3 or 6 x 4 sums along with the vectors of B and one of A, 16 hold 6 x 2. High parts are in
// memory.
namespace scalar {
using Sums = VectorOf<int32_t, 1>;
HWY_INLINE Sums add_products(Sums sums, Sums a, Sums b) {
  const auto x = std::bit_cast<Pair>(a[0]), y = std::bit_cast<Pair>(b[0]);
  return sums + (x.first * y.first + x.second * y.second);
}
constexpr int kRows = 6, kVectors = 2, kWideRows = kRows, kWideVectors = kVectors;
#include "tensor/pair_sums.inc"
#include "tensor/pair_tile.inc"
}  // namespace scalar

HWY_PUSH_ATTRIBUTES("avx2,fma")
namespace avx2 {
using Sums = VectorOf<int32_t, 8>;
HWY_INLINE Sums add_products(Sums sums, Sums a, Sums b) {
  return sums + (Sums)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
constexpr int kRows = 6, kVectors = 2, kWideRows = kRows, kWideVectors = kVectors;
#include "tensor/pair_sums.inc"
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
#include "tensor/pair_sums.inc"
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
#include "tensor/pair_sums.inc"
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
#include "tensor/pair_sums.inc"
#include "tensor/pair_tile.inc"
}  // namespace avx512_vnni
HWY_POP_ATTRIBUTES

// Registers for tiles, in assembly because compilers' functions for them do not say that they read memory.
HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,amx-tile,amx-int8")
namespace amx {
using Sums = VectorOf<int32_t, 16>;
struct Tiles {
  static void configure(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
  static void release() { asm volatile("tilerelease"); }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  static void load(const void* from) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(int64_t{64}), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* to) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(int64_t{64}), "i"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB, bool kSignedA, bool kSignedB>
  static void multiply_add() {
    if constexpr (kSignedA && kSignedB)
      asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
    else if constexpr (kSignedA) asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
    else if constexpr (kSignedB) asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
    else asm volatile("tdpbuud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
  }
};
#include "tensor/pair_sums.inc"
#include "tensor/byte_tile.inc"
}  // namespace amx
HWY_POP_ATTRIBUTES

bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1u << 4) != 0;
}

// Whether the processor has AMX-TILE and AMX-INT8, and Linux gives the process the memory in which it keeps the
// registers of a thread that does not run.
bool may_use_amx() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kInt8) == 0) return false;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

struct Choice {
  PairUnits most = PairUnits::tiles;
  const PairKernel* given = nullptr;
};
Choice& choice() {
  static Choice of_process;
  return of_process;
}

}  // namespace

bool has_pair_tiles() {
  static const bool has = may_use_amx();
  return has;
}
void use_pair_units(PairUnits most) { choice().most = most; }
void use_pair_kernel(const PairKernel* kernel) { choice().given = kernel; }

const PairKernel& pair_kernel() {
  static const bool has_256 = has_avx_vnni(), has_512 = __builtin_cpu_supports("avx512vnni");
  const auto& [most, given] = choice();
  if (given != nullptr) return *given;
  const bool dot_products = most >= PairUnits::dot_products;
  switch (current_isa()) {
    case Isa::avx512:
      if (most >= PairUnits::tiles && has_pair_tiles()) return amx::kKernel;
      return has_512 && dot_products ? avx512_vnni::kKernel : avx512::kKernel;
    case Isa::avx2:
      return has_256 && dot_products ? avx_vnni::kKernel : avx2::kKernel;
    case Isa::scalar:
      break;
  }
  return scalar::kKernel;
}

TileExtent tile_extent(Pair, int64_t columns) { return pair_kernel().extent(columns); }
void multiply_tile(const Tile<Pair>& tile) { pair_kernel().multiply(tile); }
void finish_sums(const double* sums, int64_t count, int32_t row_exponent, const int32_t* column_exponents,
                 const float* bias, float* c) {
  pair_kernel().finish(sums, count, row_exponent, column_exponents, bias, c);
}

}  // namespace elinvar
