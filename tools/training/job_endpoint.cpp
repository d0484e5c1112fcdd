#include "tools/training/job_endpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "comm/endpoint.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"

namespace elinvar {
namespace {

// Returns the value of a key as text, whatever its type, or "?" if the key is missing.
std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "?";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

}  // namespace

std::string job_endpoint(const std::string& job) {
  namespace fs = std::filesystem;
  using Json = nlohmann::json;
  const fs::path directory(job);
  if (!fs::is_directory(directory)) return to_string(resolved(parse_endpoint(job)));
  const fs::path said = directory / "coordinator.json", result = directory / "result.json";
  check(fs::exists(said), "{} is no run directory of a job: it has no coordinator.json", job);
  if (fs::exists(result)) {
    const Json over = parse_json(read_file(result));
    if (over.is_object())
      fail("the run in {} is over: {} at step {} of {}", job, text_of(over, "status"), text_of(over, "step"),
           text_of(over, "steps"));
  }
  const Json json = parse_json(read_file(said));
  if (!json.is_object() || !json.contains("endpoint") || !json["endpoint"].is_string())
    fail("{} does not say where the job is", said.string());
  return to_string(resolved(parse_endpoint(json["endpoint"].get<std::string>())));
}

}  // namespace elinvar
