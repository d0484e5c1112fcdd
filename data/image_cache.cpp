#include "data/image_cache.h"

#include <unistd.h>

#include <cstring>

#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

struct CacheHeader {
  char magic[16];
  int64_t height, width, channels;
  uint64_t digest_low, digest_high;
};
static_assert(sizeof(CacheHeader) == 56);
constexpr char kCacheMagic[] = "ELINVAR PIXELS 1";

Digest digest_of(const Image& image) {
  Hasher hasher;
  for (const int64_t extent : {image.height, image.width, image.channels}) hasher.add_integer(extent);
  hasher.add(image.pixels.data(), image.pixels.size());
  return hasher.digest();
}

}  // namespace

ImageCache::ImageCache(const fs::path& folder, std::shared_ptr<Notices> notices)
    : folder_(folder), notices_(std::move(notices)) {}

Image ImageCache::decode(std::string_view bytes, int channels, const std::string& where) const {
  if (folder_.empty()) return decode_image(bytes, channels, where);
  Hasher hasher;
  hasher.add_integer(channels);
  hasher.add(bytes);
  const std::string name = hasher.digest().hex();
  const fs::path path = folder_ / name.substr(0, 2) / name.substr(2);
  if (std::optional<Image> kept = find(path, channels)) return *std::move(kept);
  Image image = decode_image(bytes, channels, where);
  if (writable_) keep(path, image);
  return image;
}

// A file with any fault counts as absent.
std::optional<Image> ImageCache::find(const fs::path& path, int channels) const {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  try {
    const File file = File::open(path);
    const int64_t size = file.size() - static_cast<int64_t>(sizeof(CacheHeader));
    CacheHeader header;
    file.read(0, &header, sizeof header);
    if (std::memcmp(header.magic, kCacheMagic, sizeof header.magic) != 0 || header.channels != channels)
      return std::nullopt;
    if (header.height < 1 || header.width < 1 || header.height > kMostPixels || header.width > kMostPixels ||
        header.height * header.width > kMostPixels || header.height * header.width * channels != size)
      return std::nullopt;
    Image image(header.height, header.width, channels);
    file.read(sizeof header, image.pixels.data(), image.pixels.size());
    if (digest_of(image) != Digest{.high = header.digest_high, .low = header.digest_low}) return std::nullopt;
    return image;
  } catch (const Failure&) {
    return std::nullopt;
  }
}

// Does not sync, because the digest reveals damage by a crash of the machine.
void ImageCache::keep(const fs::path& path, const Image& image) const {
  static std::atomic<int64_t> written{0};
  const Digest digest = digest_of(image);
  CacheHeader header{.magic = {},
                     .height = image.height,
                     .width = image.width,
                     .channels = image.channels,
                     .digest_low = digest.low,
                     .digest_high = digest.high};
  std::memcpy(header.magic, kCacheMagic, sizeof header.magic);
  const fs::path aside = path.string() + fmt::format(".{}-{}", ::getpid(), ++written);
  std::error_code error;
  try {
    fs::create_directories(path.parent_path(), error);
    if (error) fail("cannot create the directory {}: {}", path.parent_path().string(), error.message());
    if (fs::exists(aside, error)) return;  // of a process with the same number on another machine
    {
      File file = File::create(aside);
      file.write(&header, sizeof header);
      file.write(image.pixels.data(), image.pixels.size());
    }
    rename_file(aside, path);
  } catch (const Failure& failure) {
    fs::remove(aside, error);
    if (writable_.exchange(false))
      notices_->add(fmt::format("[data] decoded images are no longer kept in data.cache_dir: {}", failure.what()));
  }
}

}  // namespace elinvar
