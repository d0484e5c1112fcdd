#pragma once
// The job with which tests of elasticity start real processes. In every size it has batch norm, dropout, and short
// batches at the end of each epoch that leave virtual ranks without samples.
#include <cstdint>
#include <string>

namespace elinvar::test {

struct SmallJob {
  int64_t steps = 600, batch_size = 12, virtual_ranks = 5;
  int64_t checkpoint_every = 100, state_digest_every = 7;
  int64_t samples = 51, image_size = 8, channels = 6;
  std::string run = {}, data = {}, optimizer = {};  // more lines for these tables
  std::string network = {};                         // the table [model]; empty: the network above
};

std::string text_of(const SmallJob& job);  // its configuration file

}  // namespace elinvar::test
