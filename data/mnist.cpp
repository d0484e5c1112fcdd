// The idx format of MNIST and related sets (http://yann.lecun.com/exdb/mnist/): two zero bytes, a type (8: unsigned
// byte), the number of dimensions, each extent as a big-endian 32-bit number, the elements; optionally compressed by
// gzip.
#include <zlib.h>

#include <algorithm>
#include <string>

#include "data/files.h"
#include "data/image_source.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr size_t kMostUnpackedBytes = size_t{1} << 32;

std::string gunzip(const std::string& packed, const std::string& where) {
  z_stream z{};
  invariant(inflateInit2(&z, 16 + MAX_WBITS) == Z_OK, "zlib starts");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&z, inflateEnd);
  std::string bytes;
  std::vector<char> piece(size_t{1} << 18);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  z.avail_in = static_cast<uInt>(packed.size());
  for (int status = Z_OK; status != Z_STREAM_END;) {
    z.next_out = reinterpret_cast<Bytef*>(piece.data());
    z.avail_out = static_cast<uInt>(piece.size());
    status = inflate(&z, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END)
      fail("[mnist] '{}' is damaged or truncated: gzip ends after {} unpacked bytes ({}); get it again", where,
           bytes.size(), z.msg ? z.msg : zError(status));
    bytes.append(piece.data(), piece.size() - z.avail_out);
    if (bytes.size() > kMostUnpackedBytes) fail("[mnist] '{}' unpacks to more than 2^32 bytes", where);
  }
  return bytes;
}

struct Idx {
  std::vector<int64_t> extents;
  std::string bytes;  // including the header
  const uint8_t* elements() const { return reinterpret_cast<const uint8_t*>(bytes.data()) + 4 + 4 * extents.size(); }
};

Idx read_idx(const FileSet& files, const std::string& path, size_t dimensions) {
  const std::string where = files.where(path);
  Idx idx{{}, files.read(path)};
  if (idx.bytes.starts_with("\x1f\x8b")) idx.bytes = gunzip(idx.bytes, where);
  const auto byte = [&](size_t i) { return static_cast<uint64_t>(static_cast<unsigned char>(idx.bytes[i])); };
  const size_t header = 4 + 4 * dimensions;
  if (idx.bytes.size() < header)
    fail("[mnist] '{}' has {} bytes, expected an idx header of {}", where, idx.bytes.size(), header);
  const uint64_t magic = byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
  if (magic != (0x0800u | dimensions))
    fail("[mnist] '{}' begins with {:#010x}, expected {:#010x} (bytes in {} dimensions): is it another file?", where,
         magic, 0x0800u | dimensions, dimensions);
  uint64_t elements = 1;
  for (size_t d = 0; d < dimensions; ++d) {
    const size_t at = 4 + 4 * d;
    const uint64_t extent = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    if (extent == 0 || extent > kMostUnpackedBytes / elements)
      fail("[mnist] '{}' states an extent of {}", where, extent);
    elements *= extent;
    idx.extents.push_back(static_cast<int64_t>(extent));
  }
  if (idx.bytes.size() != header + elements)
    fail("[mnist] '{}' has {} bytes, its header says {}: is it truncated? Get it again", where, idx.bytes.size(),
         header + elements);
  return idx;
}

class Mnist final : public ImageSource {
 public:
  Mnist(const FileSet& files, const std::string& image_path, const std::string& label_path)
      : where_(files.where(image_path)),
        images_(read_idx(files, image_path, 3)),
        labels_(read_idx(files, label_path, 1)) {
    if (images_.extents[0] != labels_.extents[0])
      fail("[mnist] '{}' has {} images, '{}' {} labels", where_, images_.extents[0], files.where(label_path),
           labels_.extents[0]);
    for (int64_t i = 0; i < size(); ++i) classes_ = std::max(classes_, label(i) + 1);
  }

  int64_t size() const override { return images_.extents[0]; }
  int64_t label(int64_t i) const override { return labels_.elements()[i]; }
  ImageView image(int64_t i, Image&) const override {
    const int64_t h = images_.extents[1], w = images_.extents[2];
    return {images_.elements() + i * h * w, h, w, 1};
  }
  std::string where(int64_t i) const override { return fmt::format("{}, image {}", where_, i); }
  bool in_memory() const override { return true; }
  int64_t classes() const override { return classes_; }
  void describe(int64_t i, Hasher& hasher) const override {
    Image unused;
    const ImageView view = image(i, unused);
    hasher.add(view.pixels, static_cast<size_t>(view.bytes()));
  }

 private:
  std::string where_;
  Idx images_, labels_;
  int64_t classes_ = 10;  // more in larger sets of this format
};

// Returns the entry with the given name, possibly with a dot before "idx" and .gz at the end; "" if there is none.
std::string find_entry(const FileSet& files, const std::string& name) {
  std::string dotted = name;
  dotted[dotted.find("-idx")] = '.';
  for (const FileSet::Entry& entry : files.entries()) {
    std::string found = entry.path.substr(entry.path.rfind('/') + 1);
    if (found.ends_with(".gz")) found.resize(found.size() - 3);
    if (found == name || found == dotted) return entry.path;
  }
  return {};
}

ImageParts::Open open_part(const std::shared_ptr<const FileSet>& files, const std::string& part) {
  const std::string images = find_entry(*files, part + "-images-idx3-ubyte");
  const std::string labels = find_entry(*files, part + "-labels-idx1-ubyte");
  if (images.empty() || labels.empty()) return {};
  return [=] { return std::make_shared<Mnist>(*files, images, labels); };
}

}  // namespace

ImageParts open_mnist(const DataConfig& config) {
  const std::shared_ptr<const FileSet> files = open_files(config.path);
  ImageParts parts;
  parts.training = open_part(files, "train");
  parts.test = open_part(files, "t10k");
  if (!parts.training)
    fail("[mnist] '{}' lacks train-images-idx3-ubyte or train-labels-idx1-ubyte (plain or .gz)", config.path);
  return parts;
}

}  // namespace elinvar
