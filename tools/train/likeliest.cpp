#include "tools/train/likeliest.h"

#include <algorithm>
#include <numeric>

#include "tensor/ops/softmax.h"

namespace elinvar {

std::vector<std::vector<Likely>> likeliest(const Tensor& logits, int64_t most) {
  const Tensor z = logits.to_contiguous(), p = softmax(z);
  const int64_t rows = z.dim(0), classes = z.dim(1);
  std::vector<std::vector<Likely>> result;
  std::vector<int64_t> order(static_cast<size_t>(classes));
  for (int64_t row = 0; row < rows; ++row) {
    const float* const own = z.data<float>() + row * classes;
    std::iota(order.begin(), order.end(), 0);
    const auto end = order.begin() + std::min(most, classes);
    std::partial_sort(order.begin(), end, order.end(), [&](int64_t a, int64_t b) {
      const bool a_is_number = own[a] == own[a], b_is_number = own[b] == own[b];
      if (!a_is_number || !b_is_number) return a_is_number != b_is_number ? a_is_number : a < b;
      return own[a] > own[b] || (own[a] == own[b] && a < b);
    });
    std::vector<Likely>& likely = result.emplace_back();
    for (auto i = order.begin(); i != end; ++i) likely.push_back({*i, p.data<float>()[row * classes + *i]});
  }
  return result;
}

}  // namespace elinvar
