#include "elastic/checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/numerics.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

// Returns whether a part's file name has no separators, so that a manifest cannot name files elsewhere.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos;
}

}  // namespace

void write_manifest(const std::filesystem::path& directory, int64_t step, std::span<const CheckpointPart> parts,
                    const Digest& state) {
  const bool sliced = std::ranges::any_of(parts, &CheckpointPart::sliced);
  Json manifest = {
      {"format", sliced ? 2 : 1}, {"numerics_version", kNumericsVersion}, {"step", step}, {"state", state.hex()}};
  manifest["parts"] = Json::array();
  for (const CheckpointPart& part : parts)
    manifest["parts"].push_back({{"file", part.file}, {"bytes", part.bytes}, {"digest", part.digest.hex()}});
  File file = File::create(directory / "manifest.json");
  file.write(manifest.dump(2) + "\n");
  file.sync();
  sync_directory(directory);
}

Manifest read_manifest(const std::filesystem::path& directory, int64_t step) {
  const Json json = read_json_object(directory / "manifest.json");
  if (json.at("format") != 1 && json.at("format") != 2)
    fail("its format is {}, this program reads 1 and 2", json.at("format").dump());
  if (json.at("numerics_version") != kNumericsVersion)
    fail("it was written under numerics version {}, this program has {}", json.at("numerics_version").dump(),
         kNumericsVersion);
  if (json.at("step") != step) fail("its manifest is that of step {}", json.at("step").dump());
  Manifest manifest{
      .format = json.at("format").get<int>(), .state = Digest::parse(json.at("state").get<std::string>()), .parts = {}};
  for (const Json& part : json.at("parts")) {
    manifest.parts.push_back({.file = part.at("file").get<std::string>(),
                              .bytes = part.at("bytes").get<int64_t>(),
                              .digest = Digest::parse(part.at("digest").get<std::string>())});
    if (!is_plain_name(manifest.parts.back().file)) fail("its manifest names a part '{}'", manifest.parts.back().file);
  }
  return manifest;
}

}  // namespace elinvar
