#pragma once
// An index of the samples in a WebDataset shard. A shard is a .tar in which the members of a sample are adjacent and
// share their name up to the first dot of its last part, the key. A sample has one image (.jpg, .jpeg or .png) and one
// label: a number as text (.cls), or a field of a .json. Other members are skipped, and so are names that begin with a
// dot or begin and end with two underscores.
//
// Indexing reads the headers and labels of the whole shard, so the index is kept in a file: "<shard>.index", or one in
// a separate folder. It records the size and modification time of the shard, the kind of label, and a digest of itself;
// if any of them does not match, it is rebuilt. It appears complete, so several processes may write it at once.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar {

struct ShardOptions {
  std::string label_field = {};             // the label's field in the .json; empty: the label is in the .cls
  std::filesystem::path index_folder = {};  // empty: next to the shard
};

class ShardIndex {
 public:
  // Throws Failure, which names the shard and the sample, for an archive that tar_members() refuses, and for samples
  // without an image or a label, or with two.
  ShardIndex(const std::filesystem::path& shard, const ShardOptions& options);

  const std::filesystem::path& shard() const { return shard_; }
  size_t size() const { return sizes_.size(); }  // samples
  std::string_view key(size_t i) const;
  int64_t label(size_t i) const { return labels_[i]; }
  int64_t image_bytes(size_t i) const { return sizes_[i]; }
  std::string read_image(size_t i) const;  // the encoded bytes; throws Failure if the shard cannot be read

  // Why the index was rebuilt, as "it had no index"; empty if a stored one was used.
  const std::string& made_because() const { return made_because_; }
  // Why the rebuilt index could not be stored; empty if it was.
  const std::string& not_kept_because() const { return not_kept_because_; }

 private:
  void make(const ShardOptions& options);
  std::string to_bytes(std::string_view about) const;
  bool from_bytes(std::string_view bytes, std::string_view about);

  std::filesystem::path shard_;
  std::vector<int64_t> offsets_, sizes_, labels_, key_ends_;
  std::string keys_;  // one after another
  std::string made_because_, not_kept_because_;
};

}  // namespace elinvar
