// Compares the environments of two runs: environment.json and what each worker reported, key by key.
#include <algorithm>
#include <map>
#include <set>

#include "tensor/base/check.h"
#include "tools/repro/comparison.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

// Keys that do not affect results: the command line and the folder in which it was given.
const std::set<std::string> kPassedOver = {"command", "folder"};

// Flattens to "key" and "key.inner"; collects the values of all workers, each once.
void flatten(const std::string& prefix, const Json& json, std::map<std::string, std::set<std::string>>& values) {
  for (const auto& [key, value] : json.items()) {
    if (prefix.empty() && kPassedOver.contains(key)) continue;
    if (value.is_object()) flatten(prefix + key + ".", value, values);
    else values[prefix + key].insert(value.is_string() ? value.get<std::string>() : value.dump());
  }
}

std::map<std::string, std::set<std::string>> values_of(const RunRecord& run) {
  std::map<std::string, std::set<std::string>> values;
  flatten("", run.environment(), values);
  for (const RunRecord::Worker& worker : run.workers()) flatten("", worker.environment, values);
  return values;
}

}  // namespace

std::vector<KeyDifference> environment_differences(const RunRecord& a, const RunRecord& b, bool all) {
  const auto ours = values_of(a), theirs = values_of(b);
  std::set<std::string> keys;
  for (const auto& [key, values] : ours) keys.insert(key);
  for (const auto& [key, values] : theirs) keys.insert(key);
  std::vector<KeyDifference> found;
  for (const std::string& key : keys) {
    const auto text = [&](const auto& values) {
      return values.contains(key) ? fmt::format("{}", fmt::join(values.at(key), " | ")) : std::string("-");
    };
    if (all || text(ours) != text(theirs)) found.push_back({key, text(ours), text(theirs)});
  }
  return found;
}

}  // namespace elinvar
