#include "nn/running_statistics.h"

#include <algorithm>
#include <cmath>

#include "tensor/check.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {
namespace {

// result[i] = f(a[i], b[i]) for two tensors (C), where a is; channels are few, so a plain loop on the CPU will do.
template <class F>
Tensor combine(const Tensor& a, const Tensor& b, F f) {
  check(a.shape() == b.shape() && a.dtype() == b.dtype(),
        "[running_statistics] {} of shape {} expected, got {} of shape {}", name_of(a.dtype()), to_string(a.shape()),
        name_of(b.dtype()), to_string(b.shape()));
  const Tensor x = a.to(Device{}).to_contiguous(), y = b.to(Device{}).to_contiguous();
  Tensor z = Tensor::empty(x.shape(), x.dtype());
  visit_float(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < x.numel(); ++i)
      z.template data<T>()[i] = f(x.template data<T>()[i], y.template data<T>()[i]);
  });
  return z.to(a.device());
}

}  // namespace

std::vector<Tensor> running_terms(const std::vector<Statistic>& statistics) {
  std::vector<Tensor> terms;
  for (const Statistic& s : statistics) {
    terms.push_back(s.batch.mean);
    visit_float(s.batch.var.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t n = s.batch.count;
      terms.push_back(
          mul(s.batch.var, static_cast<double>(static_cast<T>(n) / static_cast<T>(std::max<int64_t>(1, n - 1)))));
    });
  }
  return terms;
}

void update_running_statistics(const std::vector<Statistic>& statistics, std::span<const Tensor> sums, int64_t n) {
  check(sums.size() == 2 * statistics.size(), "[running_statistics] {} batch norms but {} sums", statistics.size(),
        sums.size());
  check(n > 0, "[running_statistics] at least one virtual rank expected, got {}", n);
  for (size_t i = 0; i < sums.size(); ++i) {
    const Statistic& s = statistics[i / 2];
    Tensor& running = (i % 2 == 0 ? s.running_mean : s.running_var)->value;
    const Tensor folded = combine(running, sums[i], [&](auto old, auto sum) {
      using T = decltype(old);
      const T mean = sum / static_cast<T>(n);
      return std::fma(static_cast<T>(s.momentum), mean, static_cast<T>(1.0 - s.momentum) * old);
    });
    copy(folded, running);
  }
}

}  // namespace elinvar
