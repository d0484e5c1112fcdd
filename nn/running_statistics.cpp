#include "nn/running_statistics.h"

#include <algorithm>
#include <cmath>

#include "tensor/check.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/pointwise.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

// One running statistic (C), wherever it is; channels are few, so a plain loop on the CPU will do.
void fold(Tensor& running, const Tensor& term_sum, double momentum, int64_t n) {
  check(running.shape() == term_sum.shape() && running.dtype() == term_sum.dtype(),
        "[running_statistics] {} of shape {} expected, got {} of shape {}", name_of(running.dtype()),
        to_string(running.shape()), name_of(term_sum.dtype()), to_string(term_sum.shape()));
  const Tensor old = running.to(Device{}).to_contiguous(), sum = term_sum.to(Device{}).to_contiguous();
  Tensor folded = Tensor::empty(old.shape(), old.dtype());
  visit_float(old.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T weight = static_cast<T>(momentum), rest = static_cast<T>(1.0 - momentum);
    for (int64_t i = 0; i < old.numel(); ++i) {
      const T mean = sum.data<T>()[i] / static_cast<T>(n);
      folded.data<T>()[i] = std::fma(weight, mean, rest * old.data<T>()[i]);
    }
  });
  copy(folded, running);
}

const Op kFold("update_running(running, sum, momentum, n)", fold);

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
    kFold(running, sums[i], s.momentum, n);
  }
}

}  // namespace elinvar
