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

Stand stand_for(const Json& environment, const std::vector<std::string>& gpus) {
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

nlohmann::ordered_json Way::about() const {
  return {{"program", program.string()}, {"device", device}, {"isa", isa}, {"threads", threads}};
}

std::string Way::text() const {
  return fmt::format("{}, {}, {} thread{}", device, isa, threads, threads == 1 ? "" : "s");
}

Side::Side(std::string name, const std::string& directory, const std::string& binary)
    : name_(std::move(name)), run_(directory) {
  check(binary.empty() || fs::is_regular_file(binary), "--binary-{}: there is no program {}", name_, binary);
  if (run_.environment().empty()) lack("environment.json does not tell with what it began");
  add_way(run_.environment(), binary);
  for (const RunRecord::Worker& worker : run_.workers()) add_way(worker.environment, binary);
}

void Side::add_way(const Json& environment, const std::string& binary) {
  const Stand stand = stand_for(environment, gpus_here());
  if (!stand.lack.empty()) lack(stand.lack);
  Way way{
      .program = program_of(environment, binary), .device = stand.device, .isa = text_in(environment, "isa", "auto")};
  const auto threads = environment.find("threads");
  if (threads != environment.end() && threads->is_number_integer()) way.threads = std::max(1, threads->get<int>());
  if (!has_isa(way.isa)) lack("this machine has no " + std::exchange(way.isa, "auto"));
  for (const Way& other : ways_)
    if (way.program == other.program && way.device == other.device && way.isa == other.isa) return;
  ways_.push_back(way);
}

// A `repro` and the `train` beside it are built of the same sources, and of the latter the run knows which it was.
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

void Side::run_trace(Workplace& place, const Way& way, std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), {"trace", path()});
  arguments.insert(arguments.end(),
                   {"--device", way.device, "--isa", way.isa, "--threads", std::to_string(way.threads)});
  const Ended ended = place.run(way.program, arguments);
  if (ended.code != 0)
    fail("{} could not do {} again (exit code {}): {}", way.program.string(), path(), ended.code, ended.last_words());
}

Trace Side::trace(Workplace& place, const Way& way, int64_t step) const {
  const fs::path out = place.path() / "trace.jsonl";
  run_trace(place, way, {"--step", std::to_string(step), "--out", out});
  return read_trace(out);
}

Reproducer Side::tensors(Workplace& place, const Way& way, int64_t step, size_t op) const {
  const fs::path out = place.path() / "trace.jsonl", saved = place.path() / "op.safetensors";
  run_trace(place, way,
            {"--step", std::to_string(step), "--out", out, "--tensors", std::to_string(op), "--save", saved});
  return read_reproducer(saved);
}

}  // namespace elinvar
