#pragma once
// Configurations of the jobs that `bench elastic` and `bench arrangements` run: resnet20, resnet50 and gpt2.
#include <string>
#include <vector>

namespace elinvar::bench {

std::vector<std::string> job_networks();

struct Sizes {
  int batch, vranks, width;  // width of an image or a text
};
Sizes short_steps(const std::string& network);
Sizes usual_steps(const std::string& network);

// Returns a configuration of very many steps. Writes the job's data to the folder, if it needs files.
std::string config_of(const std::string& network, const Sizes& sizes, const std::string& folder, int checkpoint_every);

}  // namespace elinvar::bench
