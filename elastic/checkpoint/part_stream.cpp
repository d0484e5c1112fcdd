#include "elastic/checkpoint/part_stream.h"

#include <algorithm>
#include <utility>

#include "elastic/checkpoint/part_contents.h"
#include "tensor/base/check.h"
#include "tensor/safetensors.h"

namespace elinvar {
namespace {

constexpr size_t kSentPieceBytes = size_t{8} << 20;
constexpr size_t kMostBlobs = 1024;

}  // namespace

CheckpointPart send_part(int part, int parts, const StateDict& tensors,
                         const std::function<void(messages::FilePiece, int64_t end)>& send,
                         std::span<const StateSlice> slices) {
  const PartContents contents = contents_of(tensors, slices);
  Hasher hasher;
  std::vector<Blob> blobs;
  size_t held = 0;
  int64_t sent = 0;
  const auto flush = [&] {
    if (blobs.empty()) return;
    const int64_t end = sent + static_cast<int64_t>(held);
    send({.part = part, .parts = parts, .offset = sent, .bytes = std::exchange(blobs, {})}, end);
    sent = end;
    held = 0;
  };
  const auto add = [&](const std::shared_ptr<const void>& owner, const void* bytes, size_t count) {
    hasher.add(bytes, count);
    const std::byte* at = static_cast<const std::byte*>(bytes);
    while (count > 0) {
      const size_t taken = std::min(count, kSentPieceBytes - held);
      blobs.push_back({owner, at, taken});
      held += taken;
      at += taken;
      count -= taken;
      if (held == kSentPieceBytes || blobs.size() == kMostBlobs) flush();
    }
  };
  stream_safetensors(contents.tensors, contents.metadata, add);
  flush();
  return {.file = part_file(part, parts), .bytes = sent, .digest = hasher.digest(), .sliced = !slices.empty()};
}

messages::Taken PartReceiver::take(PeerId worker, int64_t step, const messages::FilePiece& piece) {
  const int part = piece.part, parts = piece.parts;
  messages::Taken answer{.part = part, .parts = parts};
  try {
    if (part < 0 || part >= parts) fail("there is no part {} of {}", part, parts);
    if (piece.offset == 0) {
      parts_.erase(worker);
      parts_.emplace(worker, Part{step, part, parts, store_.create_part(step, part_file(part, parts))});
    }
    const auto at = parts_.find(worker);
    if (at == parts_.end()) fail("part {} of {} was given up", part, parts);
    Part& open = at->second;
    if (open.step != step || open.part != part || open.parts != parts || open.file.bytes() != piece.offset)
      fail("a piece of part {} of {} is missing", part, parts);
    for (const Blob& blob : piece.bytes) open.file.write(blob.data, blob.bytes);
    answer.offset = open.file.bytes();
  } catch (const std::exception& failure) {  // a disk error or malformed data
    parts_.erase(worker);
    answer.error = failure.what();
  }
  return answer;
}

messages::Saved PartReceiver::finish(PeerId worker, int64_t step, messages::Saved saved) {
  auto open = parts_.extract(worker);
  if (!saved.error.empty()) return saved;
  try {
    if (!open || open.mapped().step != step || open.mapped().part != saved.part || open.mapped().parts != saved.parts)
      fail("part {} of {} did not come", saved.part, saved.parts);
    const CheckpointPart written = open.mapped().file.finish();
    if (written.bytes != saved.bytes || written.digest != saved.digest)
      fail("what came of {} is not what was sent", written.file);
    saved.file = written.file;
  } catch (const std::exception& failure) {  // a disk error or malformed data
    saved.error = failure.what();
  }
  return saved;
}

}  // namespace elinvar
