#include "tools/config/ready_configs.h"

#include <algorithm>
#include <sstream>

#include "tensor/base/file.h"
#include "tools/cli/program_beside.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

std::string description_of(const fs::path& file) {
  std::istringstream lines(read_file(file));
  std::string text;
  for (std::string line; std::getline(lines, line) && line.starts_with("#");)
    text += (text.empty() ? "" : " ") + line.substr(std::min<size_t>(2, line.size()));
  return text;
}

}  // namespace

std::vector<ReadyConfig> ready_configs() {
  std::vector<ReadyConfig> configs;
  for (const fs::path& file : paths_in(program_beside("../share/elinvar/configs")))
    if (file.extension() == ".toml") configs.push_back({file.stem().string(), file, description_of(file)});
  std::ranges::sort(configs, {}, &ReadyConfig::name);
  return configs;
}

std::optional<ReadyConfig> ready_config(const std::string& name) {
  for (ReadyConfig& config : ready_configs())
    if (name == config.name || name == config.name + ".toml") return std::move(config);
  return std::nullopt;
}

}  // namespace elinvar
