#include "tools/train/job_endpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "comm/endpoint.h"
#include "tensor/check.h"
#include "tensor/file.h"

namespace elinvar {

std::string job_endpoint(const std::string& job) {
  namespace fs = std::filesystem;
  using Json = nlohmann::json;
  const fs::path directory(job);
  if (!fs::is_directory(directory)) return to_string(resolved(parse_endpoint(job)));
  const fs::path said = directory / "coordinator.json", result = directory / "result.json";
  check(fs::exists(said), "{} is no run directory of a job: it has no coordinator.json", job);
  if (fs::exists(result)) {
    const Json over = Json::parse(read_file(result), nullptr, /*allow_exceptions=*/false);
    if (over.is_object())
      fail("the run in {} is over: {} at step {} of {}", job, over.value("status", "ended"), over.value("step", 0),
           over.value("steps", 0));
  }
  const Json json = Json::parse(read_file(said), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("endpoint")) fail("{} does not say where the job is", said.string());
  return to_string(resolved(parse_endpoint(json["endpoint"].get<std::string>())));
}

}  // namespace elinvar
