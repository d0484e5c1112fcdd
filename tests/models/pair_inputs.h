#pragma once
// Pairs of texts as in golden/make_t5.py: three sources of 12, 5 and 1 tokens, and targets of 9 and 4.
#include <vector>

#include "models/input_info.h"
#include "nn/network.h"
#include "tests/models/hashed_inputs.h"

namespace elinvar {

inline InputInfo pair_info() {
  return {.sample = {12},
          .classes = 40,
          .dtype = DType::i32,
          .symbols = {40},
          .further = {{{9}, DType::i32, {40}}, {{1}, DType::i32, {13}}}};
}

inline Inputs pair_inputs() {
  return {integers<int32_t>("source", {3, 12}, 40),
          {integers<int32_t>("target", {3, 9}, 40), Tensor::from(std::vector<int32_t>{12, 5, 1}, {3, 1})}};
}

inline Tensor next_of_pairs() {
  Tensor next = integers<int64_t>("next", {3, 9}, 40);
  for (int64_t t = 4; t < 9; ++t) next.data<int64_t>()[9 + t] = -100;
  return next;
}

}  // namespace elinvar
