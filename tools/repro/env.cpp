// `repro env`: prints the environment of a run, or compares the environments of two runs (exit code 0: equal, 1: not).
#include <CLI/CLI.hpp>
#include <memory>

#include "tensor/base/check.h"
#include "tools/repro/commands.h"
#include "tools/repro/comparison.h"
#include "tools/repro/output.h"

namespace elinvar {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson described(const RunRecord& run) {
  OrderedJson workers = OrderedJson::array();
  for (const RunRecord::Worker& w : run.workers())
    workers.push_back({{"id", w.id}, {"joined", w.joined}, {"environment", w.environment}});
  OrderedJson json = {{"run", run.path().string()}, {"environment", run.environment()}, {"workers", workers}};
  if (run.header())
    json.update({{"numerics_version", run.header()->numerics_version},
                 {"numerics", run.header()->numerics},
                 {"configuration", run.header()->config.hex()},
                 {"data", run.header()->data.hex()}});
  return json;
}

int show(const RunRecord& run, bool json) {
  if (json) {
    print_json(described(run));
    return 0;
  }
  for (const KeyDifference& entry : environment_differences(run, run, true)) fmt::print("{}: {}\n", entry.key, entry.a);
  const auto entry = [](const RunRecord::Worker& w, const char* key) {
    return w.environment.contains(key) ? w.environment[key].dump() : "?";
  };
  for (const RunRecord::Worker& w : run.workers())
    fmt::print("worker {} came {}: host {}, device {}, isa {}, threads {}\n", w.id, w.joined, entry(w, "host"),
               entry(w, "device"), entry(w, "isa"), entry(w, "threads"));
  return 0;
}

}  // namespace

Command add_env(CLI::App& repro) {
  struct Options {
    std::string run, other;
    bool json = false;
  };
  const auto o = std::make_shared<Options>();
  CLI::App* app = repro.add_subcommand("env", "with what a run was made, or in what two runs differ in this");
  app->add_option("RUN", o->run, "a run directory")->required();
  app->add_option("OTHER", o->other, "another one");
  app->add_flag("--json", o->json, "the result as JSON");
  return {
      app, [o] {
        const RunRecord run(o->run);
        if (o->other.empty()) return show(run, o->json);
        const RunRecord other(o->other);
        const std::vector<KeyDifference> differences = environment_differences(run, other);
        if (o->json) {
          OrderedJson json = {{"a", described(run)}, {"b", described(other)}, {"differences", OrderedJson::array()}};
          for (const KeyDifference& d : differences)
            json["differences"].push_back({{"key", d.key}, {"a", d.a}, {"b", d.b}});
          print_json(json);
        } else {
          if (differences.empty()) fmt::print("made with the same\n");
          for (const KeyDifference& d : differences) fmt::print("{}: {} and {}\n", d.key, d.a, d.b);
        }
        return differences.empty() ? 0 : 1;
      }};
}

}  // namespace elinvar
