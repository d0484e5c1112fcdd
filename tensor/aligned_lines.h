#pragma once
// Fast products of matrices whose lines do not start at multiples of 16 bytes, for which cuBLASLt has only slow
// kernels: for GPT-2's logits, rows of 50257 bfloat16, 95 TFLOP/s on an H200, where those of other extents have 600. A
// large matrix is therefore copied to or from such lines where each of its elements takes part in so many multiply-adds
// that they save more time than the copy takes.
#include <cstdint>
#include <memory>

#include "tensor/gpu_stream.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/matmul.h"

namespace elinvar {

// A copy moves four bytes for an element of bfloat16, 1.6 ps at 2.5 TB/s; 120 multiply-adds less take 2 ps.
inline constexpr int64_t kLeastMultiplyAdds = 256, kLeastToAlign = int64_t{1} << 20;

// Whether to copy a matrix of a product, which is `lines` of `length` elements, `step` apart.
inline bool should_align(const void* data, DType dtype, int64_t lines, int64_t length, int64_t step,
                         int64_t multiply_adds) {
  const bool aligned = reinterpret_cast<uintptr_t>(data) % 16 == 0 && step * size_of(dtype) % 16 == 0;
  return !aligned && lines > 1 && lines * length >= kLeastToAlign && multiply_adds >= kLeastMultiplyAdds;
}

inline int64_t aligned_step(int64_t length, DType dtype) {
  const int64_t unit = 16 / size_of(dtype);
  return (length + unit - 1) / unit * unit;
}

// Calls multiply(args), in which such matrices are replaced.
template <class B, class Multiply>
void with_aligned_lines(GpuStream<B>& stream, const MatmulArgs& given, Multiply&& multiply) {
  MatmulArgs args = given;
  std::shared_ptr<void> blocks[3];
  const auto align = [&](std::shared_ptr<void>& block, MatrixIn& m, int64_t rows, int64_t columns,
                         int64_t multiply_adds) {
    const bool by_rows = m.col == 1;
    const int64_t lines = by_rows ? rows : columns, length = by_rows ? columns : rows;
    int64_t& step = by_rows ? m.row : m.col;
    if (!should_align(m.data, args.dtype, lines, length, step, multiply_adds)) return;
    const int64_t to = aligned_step(length, args.dtype);
    block = stream.allocate(static_cast<size_t>(lines * to * size_of(args.dtype)));
    copy(stream, CopyArgs{{m.data, args.dtype}, {block.get(), args.dtype}, {lines, length}, {step, 1}, {to, 1}});
    m.data = block.get();
    step = to;
  };
  std::shared_ptr<void>& c = blocks[2];
  if (args.batch == 1) {
    align(blocks[0], args.a, args.m, args.k, args.n);
    align(blocks[1], args.b, args.k, args.n, args.m);
    if (should_align(args.c, args.result, args.m, args.n, args.c_row, args.k)) {
      args.c_row = aligned_step(args.n, args.result);
      c = stream.allocate(static_cast<size_t>(args.m * args.c_row * size_of(args.result)));
      args.c = c.get();
    }
  }
  multiply(static_cast<const MatmulArgs&>(args));
  if (c)
    copy(stream,
         CopyArgs{
             {args.c, args.result}, {given.c, given.result}, {given.m, given.n}, {args.c_row, 1}, {given.c_row, 1}});
}

}  // namespace elinvar
