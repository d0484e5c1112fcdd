// CIFAR-10's binary form (https://www.cs.toronto.edu/~kriz/cifar.html): records of a label byte and 3 planes of 32 x 32
// bytes, red, green, blue.
#include <algorithm>
#include <string>

#include "data/files.h"
#include "data/image_source.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr int64_t kSide = 32, kPlane = kSide * kSide, kRecord = 1 + 3 * kPlane, kClasses = 10;

class Cifar10 final : public ImageSource {
 public:
  Cifar10(const FileSet& files, const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      const std::string bytes = files.read(path), where = files.where(path);
      if (bytes.empty() || static_cast<int64_t>(bytes.size()) % kRecord != 0)
        fail("[cifar10] '{}' has {} bytes, expected a multiple of {}: is it truncated? Get it again", where,
             bytes.size(), kRecord);
      for (size_t at = 0; at < bytes.size(); at += kRecord) {
        const auto* record = reinterpret_cast<const uint8_t*>(bytes.data()) + at;
        if (record[0] >= kClasses)
          fail("[cifar10] '{}': record {} has label {}, expected 0 to 9", where, at / kRecord, record[0]);
        labels_.push_back(record[0]);
        for (int64_t i = 0; i < kPlane; ++i)
          for (int64_t c = 0; c < 3; ++c) pixels_.push_back(record[1 + c * kPlane + i]);
      }
      ends_.emplace_back(where, size());
    }
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  int64_t label(int64_t i) const override { return labels_[static_cast<size_t>(i)]; }
  ImageView image(int64_t i, Image&) const override { return {pixels_.data() + i * 3 * kPlane, kSide, kSide, 3}; }
  std::string where(int64_t i) const override {
    int64_t begin = 0;
    for (const auto& [file, end] : ends_) {
      if (i < end) return fmt::format("{}, record {}", file, i - begin);
      begin = end;
    }
    return {};
  }
  bool in_memory() const override { return true; }
  int64_t classes() const override { return kClasses; }
  const std::vector<std::string>& class_names() const override {
    static const std::vector<std::string> names = {"airplane", "automobile", "bird",  "cat",  "deer",
                                                   "dog",      "frog",       "horse", "ship", "truck"};
    return names;
  }
  void describe(int64_t i, Hasher& hasher) const override { hasher.add(pixels_.data() + i * 3 * kPlane, 3 * kPlane); }

 private:
  std::vector<uint8_t> labels_, pixels_;
  std::vector<std::pair<std::string, int64_t>> ends_;  // each file's name and the index after its last image
};

}  // namespace

ImageParts open_cifar10(const DataConfig& config) {
  const std::shared_ptr<const FileSet> files = open_files(config.path);
  std::vector<std::string> training, test;
  for (const FileSet::Entry& entry : files->entries()) {
    const std::string name = entry.path.substr(entry.path.rfind('/') + 1);
    if (name.starts_with("data_batch_") && name.ends_with(".bin")) training.push_back(entry.path);
    if (name == "test_batch.bin") test.push_back(entry.path);
  }
  ImageParts parts;
  if (training.empty()) {
    parts = open_image_folder(config);
    parts.training = [open = parts.training, path = config.path] {
      ImageSourcePtr source = open();
      if (source->classes() != kClasses)
        fail("[cifar10] '{}' has images of {} classes, expected data_batch_*.bin or images of 10 classes", path,
             source->classes());
      return source;
    };
  } else {
    parts.training = [files, training] { return std::make_shared<Cifar10>(*files, training); };
    if (!test.empty()) parts.test = [files, test] { return std::make_shared<Cifar10>(*files, test); };
  }
  return parts;
}

}  // namespace elinvar
