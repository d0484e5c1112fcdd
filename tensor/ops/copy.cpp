#include "tensor/ops/copy.h"

#include <cstring>

#include "tensor/base/check.h"
#include "tensor/convert.h"
#include "tensor/graph.h"
#include "tensor/strided.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

constexpr int64_t kGrain = 16384;  // least elements per thread

}  // namespace

void copy(CpuStream& stream, const CopyArgs& a) {
  const StridedRows<2> rows(a.shape, {a.x_strides, a.y_strides});
  const int64_t n = rows.row_length(), sx = rows.inner_stride(0), sy = rows.inner_stride(1);
  visit_dtype(a.x.dtype, [&](auto from) {
    visit_dtype(a.y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      auto copy_row = [&](const From* x, To* y, int64_t count) {
        if constexpr (std::is_same_v<From, To>) {
          if (sx == 1 && sy == 1) {
            std::memcpy(y, x, static_cast<size_t>(count) * sizeof(To));
            return;
          }
        }
        for (int64_t i = 0; i < count; ++i) y[i * sy] = convert<To>(x[i * sx]);
      };
      const From* x = a.x.as<From>();
      To* y = a.y.as<To>();
      if (rows.rows() == 1) {
        stream.parallel_for(n, kGrain, [&](int64_t b, int64_t e) { copy_row(x + b * sx, y + b * sy, e - b); });
      } else {
        stream.parallel_for(rows.rows(), kGrain / (n + 1) + 1, [&](int64_t b, int64_t e) {
          for (int64_t r = b; r < e; ++r) {
            const auto at = rows.offsets(r);
            copy_row(x + at[0], y + at[1], n);
          }
        });
      }
    });
  });
}

void fill(CpuStream& stream, const FillArgs& a) {
  const StridedRows<1> rows(a.shape, {a.y_strides});
  const int64_t n = rows.row_length(), s = rows.inner_stride(0);
  visit_dtype(a.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* y = a.y.as<T>();
    const T value = convert<T>(a.value);
    stream.parallel_for(rows.rows() * n, kGrain, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e;) {
        const int64_t r = i / n, first = i % n, last = std::min(n, first + (e - i));
        T* row = y + rows.offsets(r)[0];
        for (int64_t j = first; j < last; ++j) row[j * s] = value;
        i += last - first;
      }
    });
  });
}

namespace {

// Copies between devices by way of the host, in the order of the elements.
void transfer(const Tensor& from, Tensor& to) {
  const Tensor x = from.to(to.dtype()).to_contiguous();
  Tensor y = to.contiguous() ? to : Tensor::empty(to.shape(), to.dtype(), to.device());
  if (x.device() == Device{} && sent_by_graph(x, y)) {
    if (!to.contiguous()) copy(y, to);
    return;
  }
  const auto bytes = static_cast<size_t>(x.bytes());
  const auto send = [&](auto& stream, const void* host) {
    if constexpr (std::is_same_v<decltype(stream), CpuStream&>) std::memcpy(y.raw(), host, bytes);
    else stream.copy_in(y.raw(), host, bytes);
  };
  on(x.device(), [&](auto& source) {
    if constexpr (std::is_same_v<decltype(source), CpuStream&>) {
      on(y.device(), [&](auto& stream) { send(stream, x.raw()); });
    } else {
      Tensor host = Tensor::empty(x.shape(), x.dtype());
      source.copy_out(host.raw(), x.raw(), bytes);
      on(y.device(), [&](auto& stream) { send(stream, host.raw()); });
    }
  });
  if (!to.contiguous()) copy(y, to);
}

void copy_into(const Tensor& from, Written written) {
  Tensor& to = written.tensor;
  const Tensor x = from.shape() == to.shape() ? from : from.expand(to.shape());
  on(to.device(), [&](auto& stream) {
    copy(stream, CopyArgs{{x.raw(), x.dtype()}, {to.raw(), to.dtype()}, to.shape(), x.strides(), to.strides()});
  });
}

void fill_with(Written written, double value) {
  Tensor& y = written.tensor;
  on(y.device(), [&](auto& stream) { fill(stream, FillArgs{{y.raw(), y.dtype()}, y.shape(), y.strides(), value}); });
}

const Op kCopy("copy(from, to)", copy_into);
const Op kFill("fill(y, value)", fill_with);

}  // namespace

// The device of a tensor is no part of the computation, so transfers are not recorded.
void copy(const Tensor& from, Tensor& to) {
  if (from.device() == to.device()) return kCopy(from, Written{to});
  const trace::Pause pause;
  transfer(from.shape() == to.shape() ? from : from.expand(to.shape()), to);
}

void fill(Tensor& y, double value) { kFill(Written{y}, value); }

}  // namespace elinvar
