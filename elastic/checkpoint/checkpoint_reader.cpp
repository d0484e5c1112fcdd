#include "elastic/checkpoint/checkpoint_reader.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr int64_t kVerifiedBytes = 64 * kDigestChunkBytes;

void require_digest(const CheckpointPart& part, const Digest& found) {
  if (found != part.digest) fail("the checksum of {} is wrong", part.file);
}

}  // namespace

CheckpointReader::CheckpointReader(const std::filesystem::path& directory, int64_t step)
    : step_(step), manifest_(read_manifest(directory, step)) {
  for (const CheckpointPart& part : manifest_.parts) {
    const int64_t found = static_cast<int64_t>(std::filesystem::file_size(directory / part.file));
    if (found != part.bytes) fail("{} has {} bytes instead of {}", part.file, found, part.bytes);
    parts_.emplace_back(directory / part.file);
  }
  tensors_ = stored_tensors(manifest_.format, parts_);
}

void CheckpointReader::verify_parts() const {
  for (size_t i = 0; i < parts_.size(); ++i) require_digest(manifest_.parts[i], parts_[i].digest());
}

void CheckpointReader::verify_state() const {
  Hasher hasher;
  for (const auto& [name, tensor] : tensors_) {
    const int64_t numel = tensor.shape.numel(), step = kVerifiedBytes / size_of(tensor.dtype);
    std::vector<Digest> chunks;
    for (int64_t at = 0; at < numel; at += step) {
      const Tensor piece = read_elements(name, at, std::min(numel, at + step));
      const std::vector<Digest> digests = digest_tree({&piece, 1})[0].chunks;
      chunks.insert(chunks.end(), digests.begin(), digests.end());
    }
    hasher.add(std::string_view(name));
    hasher.add(digest_of_chunks(tensor.dtype, tensor.shape, chunks));
  }
  if (hasher.digest() != digest()) fail("the digest of its state is wrong");
}

StateDict CheckpointReader::read_verified() const {
  StateDict state;
  std::vector<std::map<std::string, void*>> places(parts_.size());  // of the tensors of each file
  for (const auto& [name, tensor] : tensors_) {
    char* const elements =
        static_cast<char*>(state.emplace(name, Tensor::empty(tensor.shape, tensor.dtype)).first->second.raw());
    for (const StoredTensor::Piece& piece : tensor.pieces)
      places[piece.part][piece.name] = elements + piece.begin * size_of(tensor.dtype);
  }
  for (size_t i = 0; i < parts_.size(); ++i)
    require_digest(manifest_.parts[i], parts_[i].read([&](const std::string& name) { return places[i].at(name); }));
  return state;
}

const StoredTensor& CheckpointReader::stored(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) fail("the checkpoint of step {} has no tensor '{}'", step_, tensor);
  return found->second;
}

void CheckpointReader::read_into(const StoredTensor& tensor, int64_t begin, int64_t end, void* to) const {
  for (const StoredTensor::Piece& piece : tensor.pieces) {
    const int64_t first = std::max(begin, piece.begin), last = std::min(end, piece.end);
    if (first < last)
      parts_[piece.part].read(piece.name, first - piece.begin, last - piece.begin,
                              static_cast<char*>(to) + (first - begin) * size_of(tensor.dtype));
  }
}

StateDict CheckpointReader::read(std::span<const std::string_view> prefixes) const {
  StateDict state;
  for (const auto& [name, tensor] : tensors_) {
    if (std::ranges::none_of(prefixes, [&](std::string_view prefix) { return name.starts_with(prefix); })) continue;
    Tensor whole = Tensor::empty(tensor.shape, tensor.dtype);
    read_into(tensor, 0, tensor.shape.numel(), whole.raw());
    state.emplace(name, std::move(whole));
  }
  return state;
}

Tensor CheckpointReader::read_elements(const std::string& tensor, int64_t begin, int64_t end) const {
  const StoredTensor& from = stored(tensor);
  if (begin < 0 || begin > end || end > from.shape.numel())
    fail("'{}' of shape {} has no elements {} to {}", tensor, to_string(from.shape), begin, end);
  Tensor elements = Tensor::empty({end - begin}, from.dtype);
  read_into(from, begin, end, elements.raw());
  return elements;
}

StateSlice CheckpointReader::read_slice(const std::string& tensor, int64_t begin, int64_t end) const {
  StateSlice slice{tensor, stored(tensor).shape, begin, end, read_elements(tensor, begin, end)};
  (void)range_of(slice);
  return slice;
}

}  // namespace elinvar
