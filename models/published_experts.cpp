#include "models/published_experts.h"

#include <regex>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/ops/concat.h"

namespace elinvar {

StateDict with_separate_experts(StateDict weights) {
  static const std::regex stacked("(.*\\.experts\\.)(w[123]\\.weight)");
  StateDict result;
  for (auto& [name, tensor] : weights) {
    std::smatch part;
    if (tensor.ndim() != 3 || !std::regex_match(name, part, stacked)) {
      result.emplace(name, std::move(tensor));
      continue;
    }
    for (int64_t e = 0; e < tensor.dim(0); ++e)
      result.emplace(fmt::format("{}{}.{}", part[1].str(), e, part[2].str()), tensor.select(0, e).transpose(0, 1));
  }
  return result;
}

StateDict with_joined_experts(StateDict weights) {
  static const std::regex separate("(.*\\.experts\\.)([0-9]{1,6})\\.(w[123]\\.weight)");
  std::map<std::string, std::map<int64_t, std::string>> experts;  // names of the tensors to join
  for (const auto& [name, tensor] : weights)
    if (std::smatch part; tensor.ndim() == 2 && std::regex_match(name, part, separate))
      experts[part[1].str() + part[3].str()].emplace(std::stol(part[2].str()), name);
  for (const auto& [joined, names] : experts) {
    if (weights.contains(joined)) continue;
    const Tensor first = weights.at(names.begin()->second);
    std::vector<Tensor> parts;
    for (const auto& [number, name] : names) {
      if (number != static_cast<int64_t>(parts.size()))
        fail("[weights] of the experts 0 to {} number {} is missing before '{}'", names.rbegin()->first, parts.size(),
             name);
      const Tensor own = weights.extract(name).mapped();
      if (own.shape() != first.shape() || own.dtype() != first.dtype())
        fail("[weights] '{}' is {} {}, and '{}' {} {}: experts have the same shape and type", names.begin()->second,
             name_of(first.dtype()), to_string(first.shape()), name, name_of(own.dtype()), to_string(own.shape()));
      parts.push_back(own.transpose(0, 1).to_contiguous().unsqueeze(0));
    }
    weights.emplace(joined, concat(parts, 0));
  }
  return weights;
}

}  // namespace elinvar
