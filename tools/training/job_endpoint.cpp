#include "tools/training/job_endpoint.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "comm/endpoint.h"
#include "elastic/run/term.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

// Returns the value of a key as text, whatever its type, or "?" if the key is missing.
std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "?";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

}  // namespace

std::string job_endpoint(const std::string& job) {
  const fs::path directory(job);
  std::error_code unknown;
  if (!fs::is_directory(directory, unknown)) {
    check(job.find("://") != std::string::npos,
          "there is no run directory {}, and it is no endpoint, as tcp://HOST:PORT or ipc://PATH", job);
    return to_string(resolved(parse_endpoint(job)));
  }
  const fs::path said = directory / "coordinator.json";
  check(fs::exists(said), "{} is no run directory of a job: it has no coordinator.json", job);
  if (const std::optional<Json> result = result_of(directory))
    fail("the run in {} is over: {} at step {} of {}", job, text_of(*result, "status"), text_of(*result, "step"),
         text_of(*result, "steps"));
  const Json json = parse_json(read_file(said));
  if (!json.is_object() || !json.contains("endpoint") || !json["endpoint"].is_string())
    fail("{} does not say where the job is", said.string());
  return to_string(resolved(parse_endpoint(json["endpoint"].get<std::string>())));
}

std::string listen_towards(const std::string& job_endpoint) {
  const Endpoint job = parse_endpoint(job_endpoint);
  return job.scheme == "tcp" ? fmt::format("tcp://{}:0", address_towards(job)) : "tcp://127.0.0.1:0";
}

std::optional<Json> result_of(const fs::path& run_directory) {
  const fs::path path = run_directory / "result.json";
  if (!fs::exists(path)) return std::nullopt;
  Json result = parse_json(read_file(path));
  if (!result.is_object()) return std::nullopt;
  const std::optional<Term> newest = newest_term(run_directory);
  if (newest && result.value("tenure", Json(newest->number)) < Json(newest->number)) return std::nullopt;
  return result;
}

}  // namespace elinvar
