#pragma once
// Which samples a WebDataset shard holds, and where: a .tar in which the members of a sample follow one another and
// share their name up to the first dot of its last part, the key. A sample has one image (.jpg, .jpeg or .png) and one
// label: a number in text (.cls), or a field of a .json. Other members are passed over, and so are names that begin
// with a dot or begin and end with two underscores.
//
// Indexing reads the headers and labels of the whole shard, so its result is kept in a file: "<shard>.index", or one in
// a folder of one's own. It is of use only for the shard of the size and time of change, and for the label, that it
// notes, and bears a digest of itself; else it is made anew. It appears whole, so processes may make it at once.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar {

struct ShardOptions {
  std::string label_field = {};             // of the .json; empty: the .cls
  std::filesystem::path index_folder = {};  // empty: beside the shard
};

class ShardIndex {
 public:
  // Throws Failure naming shard and sample for an archive that tar_members() refuses, and for samples that lack an
  // image or a label or have two.
  ShardIndex(const std::filesystem::path& shard, const ShardOptions& options);

  const std::filesystem::path& shard() const { return shard_; }
  size_t size() const { return sizes_.size(); }  // samples
  std::string_view key(size_t i) const;
  int64_t label(size_t i) const { return labels_[i]; }
  int64_t image_bytes(size_t i) const { return sizes_[i]; }
  std::string read_image(size_t i) const;  // the encoded bytes; Failure if the shard cannot be read

  // Why no kept index was used: "it had no index", ...; empty: one was.
  const std::string& made_because() const { return made_because_; }
  // Why the new one could not be kept, if so.
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
