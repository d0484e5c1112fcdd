#pragma once
// Expands a path to the shards that it names.
#include <string>
#include <vector>

namespace elinvar {

// Returns the files that `path` names, sorted, each once:
//   a folder     its *.tar, and those of its folders, without hidden ones
//   a pattern    braces as in a shell, "train-{0000..0146}.tar" (as many digits as are written) or "{a,b}.tar", which
//                may be nested, and then * ? [...] within a folder; files whose name ends in .index are no shards
//   a file       itself
// Throws Failure for a folder without shards, a name from braces that does not exist, and a pattern without a match.
std::vector<std::string> shard_paths(const std::string& path);

}  // namespace elinvar
