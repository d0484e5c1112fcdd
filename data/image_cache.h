#pragma once
// Decoded images in a folder, for sets that are read many times and do not fit into memory. Any number of threads and
// processes may share the folder. A file's name is a digest of the encoded bytes, so an image that changed is another
// one; what is in it bears a digest too, so whatever a crash or a disk did to it is noticed and it is made again.
//
//   <folder>/<2 digits>/<30 digits>   16 bytes "ELINVAR PIXELS 1", then little-endian height, width and channels (8
//   bytes
//                                     each), the XXH3-128 of all that follows and these three (16 bytes), and pixels
//
// Files appear whole, by a rename. The folder only grows; it may be emptied at any time. The 1 becomes another number
// when decode_image() gives other pixels for the same bytes.
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
  // An empty `folder`: none, images are decoded each time. Where the folder cannot be written to, what is in it is
  // used; a notice says so, once.
  ImageCache(const std::filesystem::path& folder, std::shared_ptr<Notices> notices);

  // decode_image() of these arguments.
  Image decode(std::string_view bytes, int channels, const std::string& where) const;

 private:
  std::optional<Image> find(const std::filesystem::path& path, int channels) const;
  void keep(const std::filesystem::path& path, const Image& image) const;

  std::filesystem::path folder_;
  std::shared_ptr<Notices> notices_;
  mutable std::atomic<bool> writable_{true};
};

}  // namespace elinvar
