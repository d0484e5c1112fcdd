// `train sample`: text from a language model, one token after another.
#include <cstdio>

#include "tensor/check.h"
#include "tools/train/commands.h"
#include "tools/train/generation.h"

namespace elinvar {

int sample(const SampleCommand& command) {
  const std::filesystem::path directory = command.run_dir;
  Job job(read_run_config(directory), Split::train, command.device);
  const Vocabulary* vocabulary = job.data->vocabulary();
  check(vocabulary != nullptr, "{} has a network for images; only one for text can be sampled from",
        directory.string());
  check(!command.prompt.empty(), "--prompt must not be empty: the text starts with it");
  std::vector<int32_t> tokens = vocabulary->encode_prompt(command.prompt);
  job.load_network(directory);
  TextGenerator generator(job, std::move(tokens),
                          {.temperature = command.temperature, .top_k = command.top_k, .seed = command.seed});
  fmt::print("{}", command.prompt);
  for (int64_t i = 0; i < command.tokens; ++i) {
    fmt::print("{}", vocabulary->decode(generator.next()));
    std::fflush(stdout);
  }
  fmt::print("\n");
  return 0;
}

}  // namespace elinvar
