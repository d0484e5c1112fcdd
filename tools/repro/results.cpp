#include "tools/repro/results.h"

#include "tensor/base/check.h"

namespace elinvar {
namespace {

StateDict tensors_of(const TraceValues& values) {
  StateDict tensors;
  for (const TraceValue& value : values)
    if (value.tensor.defined()) tensors.emplace(value.name, value.tensor.to(Device{}));
  return tensors;
}

}  // namespace

ResultsDifference differences(const TraceValues& a, const TraceValues& b) {
  ResultsDifference difference;
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string one = i < a.size() ? a[i].number : "", other = i < b.size() ? b[i].number : "";
    if (one != other) difference.numbers.push_back({(i < a.size() ? a : b)[i].name, one, other});
  }
  difference.tensors = differences(tensors_of(a), tensors_of(b));
  return difference;
}

nlohmann::ordered_json to_json(const ResultsDifference& d) {
  nlohmann::ordered_json json = to_json(d.tensors);
  json["numbers"] = nlohmann::ordered_json::array();
  for (const auto& number : d.numbers)
    json["numbers"].push_back({{"name", number.name}, {"a", number.a}, {"b", number.b}});
  return json;
}

std::string to_text(const ResultsDifference& d) {
  std::string text;
  for (const auto& number : d.numbers) text += fmt::format("  {}: {} and {}\n", number.name, number.a, number.b);
  for (const TensorDifference& t : d.tensors.tensors) text += to_text(t, 2);
  for (const std::string& name : d.tensors.unlike) text += fmt::format("  {}: only one has it so\n", name);
  return text;
}

}  // namespace elinvar
