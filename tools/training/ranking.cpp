#include "tools/training/ranking.h"

#include <span>

#include "nn/ranks.h"
#include "tensor/base/check.h"
#include "tools/cli/csv.h"

namespace elinvar {

Ranking::Ranking(int64_t classes, int64_t ignored, bool pairs) : classes_(classes), ignored_(ignored) {
  if (pairs) pairs_.resize(static_cast<size_t>(classes * classes));
}

void Ranking::add(const Tensor& logits, const Tensor& target) {
  const Tensor all = logits.to(Device{}).to_contiguous(), right = target.to_contiguous();
  for (int64_t row = 0; row < right.numel(); ++row) {
    const int64_t label = right.data<int64_t>()[row];
    if (label == ignored_) continue;
    const float* z = all.data<float>() + row * classes_;
    const int64_t rank = rank_of(std::span(z, static_cast<size_t>(classes_)), label);
    ++counted_;
    if (rank < kMost) ++ranked_[rank];
    if (pairs_.empty()) continue;
    int64_t best = 0;
    for (int64_t c = 0; c < classes_; ++c)
      if (z[c] > z[best] || z[best] != z[best]) best = c;
    ++pairs_[static_cast<size_t>(label * classes_ + best)];
  }
}

double Ranking::top(int n) const {
  invariant(n >= 1 && n <= kMost, "so many ranks are counted");
  int64_t among = 0;
  for (int rank = 0; rank < n; ++rank) among += ranked_[rank];
  return counted_ == 0 ? 0.0 : static_cast<double>(among) / static_cast<double>(counted_);
}

std::string Ranking::csv(const std::vector<std::string>& names) const {
  const auto name = [&](int64_t c) {
    const auto i = static_cast<size_t>(c);
    return i < names.size() ? csv_field(names[i]) : std::to_string(c);
  };
  std::string text = "class";
  for (int64_t c = 0; c < classes_; ++c) text += "," + name(c);
  for (int64_t right = 0; right < classes_; ++right) {
    text += "\n" + name(right);
    for (int64_t c = 0; c < classes_; ++c)
      text += fmt::format(",{}", pairs_[static_cast<size_t>(right * classes_ + c)]);
  }
  return text + "\n";
}

}  // namespace elinvar
