#pragma once
// A folder of decoded images, for sets that are read many times and do not fit into memory. Any number of threads and
// processes may share it. A file is named by a digest of the encoded bytes, so a changed image gets another file. Its
// contents have a digest, too, so that damage by a crash or a disk is noticed and the file is made again.
//
//   <folder>/<2 digits>/<30 digits>   16 bytes "ELINVAR PIXELS 1", then little-endian height, width and channels
//                                     (8 bytes each), the XXH3-128 of these three and the pixels (16 bytes), and the
//                                     pixels
//
// Files appear complete, by a rename. The folder only grows; it may be emptied at any time. The 1 increases whenever
// decode_image() gives other pixels for the same bytes.
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/image.h"
#include "data/notices.h"
#include "tensor/digest.h"

namespace elinvar {

class ImageCache {
 public:
  // An empty `folder` turns the cache off. A folder that cannot be written to is only read; one notice says so.
  ImageCache(const std::filesystem::path& folder, std::shared_ptr<Notices> notices);

  // Returns the result of decode_image() for these arguments.
  Image decode(std::string_view bytes, int channels, const std::string& where) const;

 private:
  std::optional<Image> find(const std::filesystem::path& path, int channels) const;
  void keep(const std::filesystem::path& path, const Image& image) const;

  std::filesystem::path folder_;
  std::shared_ptr<Notices> notices_;
  mutable std::atomic<bool> writable_{true};
};

}  // namespace elinvar
