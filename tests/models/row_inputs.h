#pragma once
// Rows of numbers and categories as in golden/make_rows.py.
#include <map>
#include <string>
#include <vector>

#include "models/input_info.h"
#include "nn/network.h"
#include "tests/models/hashed_inputs.h"

namespace elinvar {

inline constexpr int64_t kRows = 6;
inline const std::vector<int64_t> kSymbols = {7, 5, 11};

struct RowCase {
  InputInfo info;
  Inputs inputs;
};

inline Spec spec_of(const std::string& kind, const std::map<std::string, Value>& settings) {
  Spec s{.kind = kind};
  for (const auto& [name, value] : settings) s.settings[name] = {value};
  return s;
}

// Categories of the first `columns` columns.
inline Tensor categories(size_t columns) {
  Tensor all = Tensor::empty({kRows, static_cast<int64_t>(columns)}, DType::i32);
  for (size_t k = 0; k < columns; ++k) {
    const Tensor column = integers<int32_t>("column" + std::to_string(k), {kRows}, static_cast<uint32_t>(kSymbols[k]));
    for (int64_t i = 0; i < kRows; ++i)
      all.data<int32_t>()[static_cast<size_t>(i) * columns + k] = column.data<int32_t>()[i];
  }
  return all;
}

inline RowCase numbers_and_categories() {
  Tensor numbers = Tensor::empty({kRows, 4});
  for (int64_t i = 0; i < numbers.numel(); ++i)
    numbers.data<float>()[i] = static_cast<float>(symmetric(key_of("input"), i));
  return {{.sample = {4}, .classes = 1, .further = {{.sample = {3}, .dtype = DType::i32, .symbols = kSymbols}}},
          Inputs(numbers, {categories(3)})};
}

// With columns of several categories, of which half the places have none.
inline RowCase numbers_and_bags() {
  const std::vector<int64_t> most = {1, 4, 2};
  const int64_t width = 7;
  Tensor places = Tensor::empty({kRows, width}, DType::i32);
  int64_t begin = 0;
  for (size_t k = 0; k < most.size(); begin += most[k++]) {
    const bool one = most[k] == 1;
    const auto n = static_cast<int32_t>(kSymbols[k]);
    const Tensor drawn = integers<int32_t>((one ? "column" : "bag") + std::to_string(k), {kRows, most[k]},
                                           static_cast<uint32_t>(one ? n : 2 * n));
    for (int64_t i = 0; i < drawn.numel(); ++i) {
      const int32_t v = drawn.data<int32_t>()[i];
      places.data<int32_t>()[i / most[k] * width + begin + i % most[k]] = v < n ? v : -1;
    }
  }
  RowCase rows = numbers_and_categories();
  rows.info.further[0].sample = {width};
  rows.info.further[0].most_ids = most;
  rows.inputs.further[0] = places;
  return rows;
}

inline RowCase pairs_of_categories() {
  return {{.sample = {2}, .classes = 1, .dtype = DType::i32, .symbols = {kSymbols[0], kSymbols[1]}},
          Inputs(categories(2))};
}

}  // namespace elinvar
