#pragma once
// The job that tests of elasticity give to real processes: whatever its size, it has batch norm, dropout, and short
// batches at the end of each epoch that leave virtual ranks without samples.
#include <cstdint>
#include <string>

namespace elinvar::test {

struct SmallJob {
  int64_t steps = 600, batch_size = 12, virtual_ranks = 5;
  int64_t checkpoint_every = 100, state_digest_every = 7;
  int64_t samples = 51, image_size = 8, channels = 6;
  std::string run = {}, data = {};  // further lines of these tables
};

std::string text_of(const SmallJob& job);  // its configuration

}  // namespace elinvar::test
