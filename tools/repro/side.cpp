#include "tools/repro/side.h"

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/device_description.h"
#include "tensor/isa.h"
#include "tools/training/program.h"

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

std::string text_in(const Json& environment, const char* key, const std::string& otherwise) {
  const auto found = environment.find(key);
  return found != environment.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

bool has_isa(const std::string& isa) {
  try {
    (void)parse_isa(isa);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

std::optional<Device> device_here(const std::string& name) {
  try {
    return parse_device(name);
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

const std::vector<std::string>& gpus_here() {
  static const std::vector<std::string> models = [] {
    std::vector<std::string> found;
    while (const auto device = device_here(fmt::format("cuda:{}", found.size())))
      found.push_back(describe(*device).model);
    return found;
  }();
  return models;
}

}  // namespace

DeviceMatch match_device(const Json& environment, const std::vector<std::string>& gpus) {
  const std::string device = text_in(environment, "device", "cpu");
  if (!device.starts_with("cuda")) {
    if (device_here(device)) return {device};
    return {"cpu", "this machine has no " + device};
  }
  const auto gpu = environment.find("gpu");
  const std::string model = gpu != environment.end() ? text_in(*gpu, "model", "") : "";
  const auto like = std::find(gpus.begin(), gpus.end(), model);
  if (like != gpus.end()) return {fmt::format("cuda:{}", like - gpus.begin())};
  const std::string lack =
      "this machine has no " + (model.empty() ? "GPU that is known to be the one of " + device : model);
  return {gpus.empty() ? "cpu" : "cuda:0", lack};
}

nlohmann::ordered_json ReplayEnvironment::about() const {
  return {{"program", program.string()}, {"device", device}, {"isa", isa}, {"threads", threads}};
}

std::string ReplayEnvironment::text() const {
  return fmt::format("{}, {}, {} thread{}", device, isa, threads, threads == 1 ? "" : "s");
}

Side::Side(std::string name, const std::string& directory, const std::string& binary)
    : name_(std::move(name)), run_(directory) {
  check(binary.empty() || fs::is_regular_file(binary), "--binary-{}: there is no program {}", name_, binary);
  if (run_.environment().empty()) lack("environment.json does not tell with what it began");
  add_environment(run_.environment(), binary);
  for (const RunRecord::Worker& worker : run_.workers()) add_environment(worker.environment, binary);
}

void Side::add_environment(const Json& environment, const std::string& binary) {
  const DeviceMatch match = match_device(environment, gpus_here());
  if (!match.lack.empty()) lack(match.lack);
  ReplayEnvironment replay{
      .program = program_of(environment, binary), .device = match.device, .isa = text_in(environment, "isa", "auto")};
  const auto threads = environment.find("threads");
  if (threads != environment.end() && threads->is_number_integer()) replay.threads = std::max(1, threads->get<int>());
  if (!has_isa(replay.isa)) lack("this machine has no " + std::exchange(replay.isa, "auto"));
  for (const ReplayEnvironment& other : environments_)
    if (replay.program == other.program && replay.device == other.device && replay.isa == other.isa) return;
  environments_.push_back(replay);
}

// Finds the `repro` of a worker's program: it is next to the `train` that the run recorded with its digest, and built
// from the same sources.
fs::path Side::program_of(const Json& environment, const std::string& binary) {
  const std::string made_by = text_in(environment, "binary", ""), build = text_in(environment, "program", "");
  const fs::path program = binary.empty() ? fs::path(made_by).parent_path() / "repro" : fs::path(binary);
  if (binary.empty() && made_by.empty()) {
    lack(
        fmt::format("environment.json does not tell its program, this one takes its place: --binary-{} names the repro "
                    "of its build",
                    name_));
    return fs::read_symlink("/proc/self/exe");
  }
  if (!fs::is_regular_file(program)) {
    lack(fmt::format("its own program {} is gone, this one takes its place: --binary-{} names the repro of its build",
                     made_by, name_));
    return fs::read_symlink("/proc/self/exe");
  }
  const fs::path train = program.parent_path() / "train";
  const bool there = fs::is_regular_file(train);
  if (!build.empty() && (there ? digest_of_program(train) != build : binary.empty()))
    lack(fmt::format("{} is not of the build that made it: --binary-{} names the repro of that", program.string(),
                     name_));
  return program;
}

void Side::lack(const std::string& what) {
  if (std::find(lacks_.begin(), lacks_.end(), what) == lacks_.end()) lacks_.push_back(what);
}

void Side::run_trace(Subprocess& subprocess, const ReplayEnvironment& replay,
                     std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), {"trace", path()});
  arguments.insert(arguments.end(),
                   {"--device", replay.device, "--isa", replay.isa, "--threads", std::to_string(replay.threads)});
  const Subprocess::Ended ended = subprocess.run(replay.program, arguments);
  if (ended.code != 0)
    fail("{} could not do {} again (exit code {}): {}", replay.program.string(), path(), ended.code,
         ended.last_words());
}

Trace Side::trace(Subprocess& subprocess, const ReplayEnvironment& replay, int64_t step) const {
  const fs::path out = subprocess.path() / "trace.jsonl";
  run_trace(subprocess, replay, {"--step", std::to_string(step), "--out", out});
  return read_trace(out);
}

Reproducer Side::tensors(Subprocess& subprocess, const ReplayEnvironment& replay, int64_t step, size_t op) const {
  const fs::path out = subprocess.path() / "trace.jsonl", saved = subprocess.path() / "op.safetensors";
  run_trace(subprocess, replay,
            {"--step", std::to_string(step), "--out", out, "--tensors", std::to_string(op), "--save", saved});
  return read_reproducer(saved);
}

}  // namespace elinvar
