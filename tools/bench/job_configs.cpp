#include "tools/bench/job_configs.h"

#include <fmt/format.h>

#include "tools/bench/job_files.h"

namespace elinvar::bench {

std::vector<std::string> job_networks() { return {"resnet20", "resnet50", "gpt2"}; }

std::string config_of(const std::string& network, const Sizes& sizes, const std::string& folder, int checkpoint_every) {
  std::string text = fmt::format(
      "[run]\nsteps = 1000000\nbatch_size = {}\nvirtual_ranks = {}\nstate_digest_every = 0\ncheckpoint_every = {}\n"
      "keep = 1\n[model]\nkind = \"{}\"\n",
      sizes.batch, sizes.vranks, checkpoint_every, network);
  if (network == "gpt2") {
    write_text(folder + "/text", 50257, 200000);
    return text + fmt::format(
                      "[data]\nkind = \"text\"\npath = \"{}/text\"\ntokens = \"character\"\ncontext = {}\n"
                      "[optimizer]\nkind = \"adamw\"\nlr = 1e-4\n",
                      folder, sizes.width);
  }
  return text + fmt::format(
                    "[data]\nkind = \"synthetic\"\nsize = 1024\nclasses = {}\nimage_size = {}\n"
                    "[optimizer]\nkind = \"sgd\"\nlr = 1e-3\n",
                    network == "resnet50" ? 1000 : 10, sizes.width);
}

Sizes short_steps(const std::string& network) {
  return {.batch = 4, .vranks = 4, .width = network == "resnet20" ? 32 : network == "resnet50" ? 64 : 16};
}

Sizes usual_steps(const std::string& network) {
  if (network == "resnet20") return {.batch = 128, .vranks = 2, .width = 32};
  if (network == "resnet50") return {.batch = 8, .vranks = 2, .width = 224};
  return {.batch = 4, .vranks = 2, .width = 256};
}

}  // namespace elinvar::bench
