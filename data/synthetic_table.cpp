#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "data/notices.h"
#include "data/table.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {
namespace {

constexpr int kFactors = 4, kLimit = 6;

// Two bits as -1, 0, 0 or 1.
int sign_of(uint32_t bits) { return (bits & 3) == 0 ? -1 : (bits & 3) == 3 ? 1 : 0; }

class SyntheticTable final : public Dataset {
 public:
  // Different values of `part` give different rows of the same rule.
  SyntheticTable(const DataConfig& config, uint32_t part, int64_t size)
      : key_(static_cast<uint64_t>(config.data_seed) ^ key_of("data.synthetic_table")),
        part_(part),
        size_(size),
        features_(config.features),
        symbols_(config.symbols),
        most_ids_(most_ids_of(config, config.symbols.size())) {
    for (int64_t f = 0; f < features_; ++f)
      weights_.push_back(sign_of(philox(key_, 0, 0, static_cast<uint32_t>(f), 0).v[0] >> 8));
    if (part_ > 0) notices_.add(best_loss());
  }

  int64_t size() const override { return size_; }
  int64_t classes() const override { return 0; }
  SampleFormat format() const override {
    SampleFormat format{.inputs = {}, .target = {Shape{}, DType::f32}};
    if (features_ > 0) format.inputs.push_back({{features_}, DType::f32});
    if (!symbols_.empty()) {
      int64_t places = 0;
      for (size_t k = 0; k < symbols_.size(); ++k) places += most_ids(k);
      format.inputs.push_back({{places}, DType::i32, symbols_, most_ids_});
    }
    return format;
  }

  void read(int64_t index, const Draw&, const SampleBuffers& sample) const override {
    const Row row = row_of(index);
    size_t input = 0;
    if (features_ > 0) std::ranges::copy(row.numbers, sample.input<float>(input++));
    if (!symbols_.empty()) std::ranges::copy(row.categories, sample.input<int32_t>(input));
    *sample.target<float>() = row.target ? 1.0f : 0.0f;
  }

  std::vector<std::string> take_notices() const override { return notices_.take(); }

  void describe(Hasher& hasher) const override {
    for (const int64_t v : {static_cast<int64_t>(key_), int64_t{part_}, size_, features_}) hasher.add_integer(v);
    for (const int64_t symbols : symbols_) hasher.add_integer(symbols);
    for (const int64_t most : most_ids_) hasher.add_integer(most);
  }

 private:
  int64_t most_ids(size_t column) const { return most_ids_.empty() ? 1 : most_ids_[column]; }

  struct Row {
    std::vector<float> numbers;
    std::vector<int32_t> categories;
    int t;  // the target is 1 with probability 2^t / (1 + 2^t)
    bool target;
  };

  Row row_of(int64_t index) const {
    const auto words = [&](uint32_t block) {
      return philox(key_, 1 + part_, static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), block);
    };
    Row row{.numbers = {}, .categories = {}, .t = 0, .target = false};
    uint32_t block = 1;
    for (int64_t f = 0; f < features_; ++f) {
      const int x = static_cast<int>(random_below(words(block++).v[0], 5)) - 2;
      row.numbers.push_back(static_cast<float>(x));
      row.t += weights_[static_cast<size_t>(f)] * x;
    }
    std::array<int64_t, kFactors> sums = {};
    int64_t squares = 0;
    for (size_t k = 0; k < symbols_.size(); ++k) {
      const int64_t most = most_ids(k);
      const int64_t ids = most == 1 ? 1 : random_below(words(block++).v[0], most + 1);
      std::array<int64_t, kFactors> vector = {};
      for (int64_t i = 0; i < ids; ++i) {
        const uint32_t place = block + static_cast<uint32_t>(i);
        row.categories.push_back(static_cast<int32_t>(random_below(words(place).v[0], symbols_[k])));
        const Random4 factors =
            philox(key_, 0, static_cast<uint32_t>(1 + k), static_cast<uint32_t>(row.categories.back()), 1);
        for (size_t r = 0; r < kFactors; ++r) vector[r] += sign_of(factors.v[r] >> 8);
      }
      block += static_cast<uint32_t>(most);
      row.categories.insert(row.categories.end(), static_cast<size_t>(most - ids), -1);
      // Twice the sum over pairs is the square of the sum less the sum of squares.
      for (size_t r = 0; r < kFactors; ++r) {
        sums[r] += vector[r];
        squares += vector[r] * vector[r];
      }
    }
    int64_t pairs = -squares;
    for (const int64_t sum : sums) pairs += sum * sum;
    row.t = static_cast<int>(std::clamp<int64_t>(row.t + pairs / 2, -kLimit, kLimit));
    // u / 2^32 < 2^t / (1 + 2^t), in integers.
    const uint64_t u = words(0).v[0], ones = uint64_t{1} << std::max(row.t, 0),
                   zeros = uint64_t{1} << std::max(-row.t, 0);
    row.target = u * (ones + zeros) < ones << 32;
    return row;
  }

  // The mean over all rows of -log of the probability that the rule gives to the target.
  std::string best_loss() const {
    double sum = 0;
    for (int64_t i = 0; i < size_; ++i) {
      const Row row = row_of(i);
      sum += std::log1p(std::exp2(row.target ? -row.t : row.t));
    }
    return fmt::format(
        "the rule that made the {} rows predicts them with a loss of {:.4f}; none does better but by chance", size_,
        sum / static_cast<double>(size_));
  }

  uint64_t key_;
  uint32_t part_;
  int64_t size_, features_;
  std::vector<int64_t> symbols_, most_ids_;
  std::vector<int> weights_;
  mutable Notices notices_;
};

}  // namespace

std::unique_ptr<Dataset> open_synthetic_table(const DataConfig& config, Split split) {
  check_setting(config.size >= 10 && config.size <= kMostSynthetic, "data.size", "must be from 10 to {}, got {}",
                kMostSynthetic, config.size);
  check_setting(config.features >= 0 && config.features <= 4096, "data.features", "must be from 0 to 4096, got {}",
                config.features);
  check_setting(config.symbols.size() <= 256 && (config.features > 0 || !config.symbols.empty()), "data.symbols",
                "must have at most 256 columns, and at least one without data.features, got {}", config.symbols.size());
  for (const int64_t symbols : config.symbols)
    check_setting(symbols >= 1 && symbols < int64_t{1} << 31, "data.symbols", "must be from 1 to 2^31 - 1, got {}",
                  symbols);
  const double share = config.validation_fraction > 0 ? config.validation_fraction : 0.1;
  const auto apart = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(config.size) * share));
  return std::make_unique<SyntheticTable>(config,
                                          split == Split::train        ? 0
                                          : split == Split::validation ? 1
                                                                       : 2,
                                          split == Split::train ? config.size : apart);
}

}  // namespace elinvar
