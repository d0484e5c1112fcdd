// Images in WebDataset shards. Every sample is read in place, at the offset that the index gives.
#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>

#include "data/files.h"
#include "data/image_cache.h"
#include "data/image_source.h"
#include "data/shard_index.h"
#include "data/shards.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

// The samples of several shards, one shard after another.
class ShardImages final : public ImageSource {
 public:
  // Labels must be below `classes`; 0 allows as many classes as there are.
  ShardImages(std::vector<ShardIndex> shards, int64_t classes, std::shared_ptr<const ImageCache> cache)
      : shards_(std::move(shards)), classes_(classes), cache_(std::move(cache)) {
    int64_t samples = 0;
    for (const ShardIndex& shard : shards_) {
      ends_.push_back(samples += static_cast<int64_t>(shard.size()));
      for (size_t i = 0; i < shard.size(); ++i) {
        if (classes > 0 && shard.label(i) >= classes)
          fail("[webdataset] '{}': sample '{}' has label {}, the largest in training is {}", shard.shard().string(),
               shard.key(i), shard.label(i), classes - 1);
        classes_ = std::max(classes_, shard.label(i) + 1);
      }
    }
    if (classes_ > kMostClasses)
      fail("[webdataset] there are labels up to {}, the most is {}", classes_ - 1, kMostClasses - 1);
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  int64_t label(int64_t i) const override {
    const auto [shard, at] = place(i);
    return shard->label(at);
  }
  ImageView image(int64_t i, Image& scratch) const override {
    const auto [shard, at] = place(i);
    scratch = cache_->decode(shard->read_image(at), 3, where(i));
    return scratch.view();
  }
  std::string where(int64_t i) const override {
    const auto [shard, at] = place(i);
    return fmt::format("{}: {}", shard->shard().string(), shard->key(at));
  }
  bool in_memory() const override { return false; }
  int64_t classes() const override { return classes_; }
  void describe(int64_t i, Hasher& hasher) const override {
    const auto [shard, at] = place(i);
    hasher.add(shard->key(at));
    hasher.add_integer(shard->image_bytes(at));
  }

 private:
  static constexpr int64_t kMostClasses = 1 << 24;

  std::pair<const ShardIndex*, size_t> place(int64_t i) const {
    const auto shard = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
    return {&shards_[shard], static_cast<size_t>(i - (shard == 0 ? 0 : ends_[shard - 1]))};
  }

  std::vector<ShardIndex> shards_;
  std::vector<int64_t> ends_;  // per shard, the number of samples up to its end
  int64_t classes_;
  std::shared_ptr<const ImageCache> cache_;
};

std::string seconds_since(std::chrono::steady_clock::time_point start) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

// Opens shards with all threads. If several fail, throws the error of the first in `paths`.
std::vector<ShardIndex> indices_of(const std::vector<std::string>& paths, const ShardOptions& options,
                                   Notices& notices) {
  const auto start = std::chrono::steady_clock::now();
  const auto count = static_cast<int64_t>(paths.size());
  std::vector<std::optional<ShardIndex>> found(paths.size());
  std::vector<std::exception_ptr> errors(paths.size());
  cpu_stream().parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      try {
        found[i].emplace(paths[i], options);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  });
  std::vector<ShardIndex> indices;
  int64_t made = 0;
  std::string first, not_kept;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (errors[i]) std::rethrow_exception(errors[i]);
    ShardIndex& index = indices.emplace_back(*std::move(found[i]));
    made += !index.made_because().empty();
    if (made == 1 && first.empty()) first = fmt::format("'{}': {}", paths[i], index.made_because());
    if (not_kept.empty() && !index.not_kept_because().empty()) not_kept = index.not_kept_because();
  }
  if (made > 0)
    notices.add(
        fmt::format("[webdataset] indexed {} of {} shards in {} ({})", made, count, seconds_since(start), first));
  if (!not_kept.empty())
    notices.add(
        fmt::format("[webdataset] shards will be indexed again next time ({}); data.index_dir names a "
                    "folder for indices",
                    not_kept));
  return indices;
}

struct Parts {
  std::vector<std::string> training, validation, test;
};

// Assigns shards to splits by words in their names, below the folder that contains all. `paths` are sorted.
Parts parts_of(const std::vector<std::string>& paths) {
  const std::string &first = paths.front(), &last = paths.back();
  const auto common =
      static_cast<size_t>(std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first - first.begin());
  const size_t folder = first.substr(0, common).rfind('/') + 1;
  Parts parts;
  for (const std::string& path : paths) {
    const std::string name = path.substr(folder);
    (name.find("val") != name.npos    ? parts.validation
     : name.find("test") != name.npos ? parts.test
                                      : parts.training)
        .push_back(path);
  }
  if (parts.training.empty()) {  // there is nothing to tell apart
    parts = {};
    parts.training = paths;
  }
  return parts;
}

}  // namespace

ImageParts open_webdataset(const DataConfig& config) {
  const Parts paths = parts_of(shard_paths(config.path));
  ImageParts parts;
  const ShardOptions options{.label_field = config.label_field, .index_folder = config.index_dir};
  const auto cache = std::make_shared<const ImageCache>(config.cache_dir, parts.notices);
  const auto open = [options, cache, notices = parts.notices](const std::vector<std::string>& shards, int64_t classes) {
    return std::make_shared<ShardImages>(indices_of(shards, options, *notices), classes, cache);
  };
  parts.training = [open, training = paths.training] { return open(training, 0); };
  const auto other = [&](const std::vector<std::string>& shards) -> ImageParts::Open {
    if (shards.empty()) return {};
    return [open, shards, training = parts.training] { return open(shards, training()->classes()); };
  };
  parts.validation = other(paths.validation);
  parts.test = other(paths.test);
  return parts;
}

}  // namespace elinvar
