#include "models/published_experts.h"

#include <algorithm>
#include <regex>
#include <vector>

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
    const Tensor& first = weights.at(names.begin()->second);
    const bool complete = names.rbegin()->first == static_cast<int64_t>(names.size()) - 1;
    if (!complete || !std::ranges::all_of(names, [&](const auto& entry) {
          const Tensor& tensor = weights.at(entry.second);
          return tensor.shape() == first.shape() && tensor.dtype() == first.dtype();
        }))
      continue;
    std::vector<Tensor> parts;
    for (const auto& [number, name] : names)
      parts.push_back(weights.extract(name).mapped().transpose(0, 1).to_contiguous().unsqueeze(0));
    weights.emplace(joined, concat(parts, 0));
  }
  return weights;
}

}  // namespace elinvar
