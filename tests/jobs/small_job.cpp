#include "tests/jobs/small_job.h"

#include <fmt/format.h>

namespace elinvar::test {
namespace {

std::string network_of(const SmallJob& job) {
  if (!job.network.empty()) return job.network;
  return fmt::format(R"([[model.layer]]
kind = "conv2d"
out = {}
[[model.layer]]
kind = "batch_norm"
[[model.layer]]
kind = "dropout"
p = 0.1
[[model.layer]]
kind = "global_avg_pool"
[[model.layer]]
kind = "linear"
)",
                     job.channels);
}

}  // namespace

std::string text_of(const SmallJob& job) {
  return fmt::format(R"([run]
steps = {}
batch_size = {}
virtual_ranks = {}
seed = 5
checkpoint_every = {}
state_digest_every = {}
{}
[data]
kind = "synthetic"
size = {}
classes = 3
image_size = {}
{}
[optimizer]
lr = 0.05
{}
{})",
                     job.steps, job.batch_size, job.virtual_ranks, job.checkpoint_every, job.state_digest_every,
                     job.run, job.samples, job.image_size, job.data, job.optimizer, network_of(job));
}

}  // namespace elinvar::test
