#pragma once
// The ready configurations that come with the programs: share/elinvar/configs beside the folder of programs, in an
// installation as in a build tree, where it leads to models/configs.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace elinvar {

struct ReadyConfig {
  std::string name;  // "resnet20_cifar10"
  std::filesystem::path file;
  std::string description;  // the comment that the file begins with, on one line
};

// Returns all, sorted by name; none if the folder does not exist.
std::vector<ReadyConfig> ready_configs();

// Returns the one with this name, with or without ".toml".
std::optional<ReadyConfig> ready_config(const std::string& name);

}  // namespace elinvar
