#pragma once
// The interface of the micro-kernels of exact products (pair_tile.cpp): each version is a PairKernel, made of the texts
// pair_sums.inc and pair_tile.inc or byte_tile.inc in a namespace of its own.
#include <cstdint>

#include "tensor/tile.h"

#define ELINVAR_INLINE __attribute__((always_inline))

namespace elinvar {

// The functions of one set of instructions.
struct PairKernel {
  void (*multiply)(const Tile<Pair>&);
  TileExtent (*extent)(int64_t columns);
  void (*finish)(const double*, int64_t, int32_t, const int32_t*, const float*, float*);
  // For plans of carries (tensor/carries.h), of which tiles of bytes have none: sets the sums of magnitudes or squares
  // of columns in each step, and raises those of squares of rows in each part.
  void (*magnitudes_of_columns)(const Tile<Pair>&, int32_t* steps) = nullptr;
  void (*squares_of_columns)(const Tile<Pair>&, int32_t* steps) = nullptr;
  void (*squares_of_rows)(const Tile<Pair>&, float* parts) = nullptr;
};

template <class T, int kLanes>
using VectorOf __attribute__((vector_size(kLanes * sizeof(T)))) = T;

// What LDTILECFG reads (Intel's manual, "AMX"): the number of rows and of bytes in a row of each tile register.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

// The kernel for the current instruction set and the units in use.
const PairKernel& pair_kernel();

// The largest sum that may be added to what a carry leaves, which is below 2^16.
inline constexpr int32_t kMostSum = INT32_MAX - 0xffff;

// Replaces the kernel that the processor and use_pair_units would choose; null ends that. For tests, which model
// instructions that few processors have; call it while no kernel runs.
void use_pair_kernel(const PairKernel* kernel);

}  // namespace elinvar
