#pragma once
// A short job of a recommendation network with a sparse table.
#include <fmt/format.h>

#include <string>

namespace elinvar::test {

// `symbols` are the numbers of categories of three columns; `optimizer` has further lines of [optimizer].
inline std::string sparse_table_job(const std::string& symbols, const std::string& optimizer = {}) {
  return fmt::format(R"([run]
steps = 12
batch_size = 30
virtual_ranks = 3
eval_every = 5
checkpoint_every = 6
state_digest_every = 3
[model]
kind = "dlrm"
[task]
kind = "binary"
[data]
kind = "synthetic_table"
size = 310
features = 3
symbols = [{}]
[optimizer]
kind = "adam"
lr = 0.01
clip_norm = 0.5
sparse = ["embedding.weight"]
{})",
                     symbols, optimizer);
}

}  // namespace elinvar::test
