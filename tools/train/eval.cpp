// `train eval`: the score of a run's newest checkpoint on a split.
#include <filesystem>

#include "tensor/check.h"
#include "tools/train/commands.h"
#include "tools/train/job.h"

namespace elinvar {

int eval(const EvalCommand& command) {
  const std::filesystem::path directory = command.run_dir;
  Job job(read_run_config(directory), command.split == "test" ? Split::test : Split::validation, command.device);
  check(!command.mirror || job.data->input_shape().ndim() == 3, "--mirror: the data of this run are no images");
  const int64_t step = job.load_network(directory);
  const Score result = sum(score(job, job.data, 0, 1, command.mirror));
  fmt::print("{} step={} loss={:.6g} accuracy={:.4f} samples={}\n", command.split, step, result.loss, result.accuracy,
             result.samples);
  return 0;
}

}  // namespace elinvar
