#pragma once
// Many files named at once.
#include <string>
#include <vector>

namespace elinvar {

// The files that `path` stands for, sorted, each once:
//   a folder     its *.tar, and those of its folders, without hidden ones
//   a pattern    braces as in a shell, "train-{0000..0146}.tar" (as many digits as are written) or "{a,b}.tar", which
//   may
//                lie in one another, and then * ? [...] within a folder; files whose name ends in .index are no shards
//   a file       itself
// Throws Failure for what is not there: a folder without any, a name of the braces, a pattern that nothing matches.
std::vector<std::string> shard_paths(const std::string& path);

}  // namespace elinvar
