// `repro digest`: prints the digest of a file, of each tensor of a safetensors file, of a checkpoint, or of all
// checkpoints of a run. Equal digests mean equal bits.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "elastic/checkpoint/checkpoint.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/digest_tree.h"
#include "tensor/safetensors.h"
#include "tools/repro/commands.h"
#include "tools/repro/output.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

struct DigestOptions {
  std::string path;
  bool tensors = false, json = false;
};

OrderedJson describe(const StateDict& state) {
  OrderedJson tensors = OrderedJson::array();
  for (const auto& [name, tensor] : state)
    tensors.push_back({{"name", name},
                       {"dtype", name_of(tensor.dtype())},
                       {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                       {"digest", digest(tensor).hex()}});
  return tensors;
}

OrderedJson of_state(const std::string& what, const StateDict& state, bool tensors) {
  OrderedJson json = {{"what", what}, {"digest", digest(state).hex()}};
  if (tensors) json["tensors"] = describe(state);
  return json;
}

// Every entry has "what" and "digest"; a damaged checkpoint has "error" instead.
OrderedJson digests_of(const DigestOptions& o) {
  const fs::path path(o.path);
  check(fs::exists(path), "there is no {}", o.path);
  OrderedJson entries = OrderedJson::array();
  if (!fs::is_directory(path)) {
    if (path.extension() == ".safetensors") {
      const SafetensorsContents contents = read_safetensors(path);
      entries.push_back(of_state("tensors", contents.tensors, o.tensors));
      entries.push_back({{"what", "file"}, {"digest", contents.digest.hex()}});
    } else {
      const std::string bytes = read_file(path);
      entries.push_back({{"what", "file"}, {"digest", digest_bytes(bytes.data(), bytes.size()).hex()}});
    }
    return entries;
  }
  const fs::path checkpoint = fs::weakly_canonical(path);
  const bool single = fs::exists(path / "manifest.json");
  const CheckpointStore store(single ? checkpoint.parent_path() : path / "checkpoints");
  std::vector<int64_t> steps = store.steps();
  if (single) std::erase_if(steps, [&](int64_t step) { return checkpoint.filename() != fmt::format("step-{}", step); });
  check(!steps.empty(), "{} is neither a checkpoint nor the directory of a run that has one", o.path);
  for (const int64_t step : steps) {
    const std::string what = fmt::format("state after step {}", step);
    try {
      entries.push_back(of_state(what, store.read(step).state, o.tensors));
    } catch (const Failure& damaged) {
      entries.push_back({{"what", what}, {"error", damaged.what()}});
    }
  }
  return entries;
}

int digest_command(const DigestOptions& o) {
  const OrderedJson entries = digests_of(o);
  if (o.json) print_json({{"path", o.path}, {"digests", entries}});
  bool damaged = false;
  for (const OrderedJson& entry : entries) {
    damaged = damaged || entry.contains("error");
    if (o.json) continue;
    if (entry.contains("error")) fmt::print(stderr, "{}\n", entry["error"].get<std::string>());
    else fmt::print("{}  {}\n", entry["digest"].get<std::string>(), entry["what"].get<std::string>());
    for (const OrderedJson& t : entry.value("tensors", OrderedJson::array()))
      fmt::print("{}    {} {} {}\n", t["digest"].get<std::string>(), t["name"].get<std::string>(),
                 t["dtype"].get<std::string>(), t["shape"].dump());
  }
  return damaged ? 3 : 0;
}

}  // namespace

Command add_digest(CLI::App& repro) {
  const auto o = std::make_shared<DigestOptions>();
  CLI::App* app = repro.add_subcommand("digest", "digests of a file, a checkpoint, or the checkpoints of a run");
  app->add_option("PATH", o->path, "a file, a checkpoint's folder or a run directory")->required();
  app->add_flag("--tensors", o->tensors, "of each tensor, too");
  app->add_flag("--json", o->json, "the result as JSON");
  return {app, [o] { return digest_command(*o); }};
}

}  // namespace elinvar
