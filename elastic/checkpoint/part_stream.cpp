#include "elastic/checkpoint/part_stream.h"

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/safetensors.h"

namespace elinvar {
namespace {

constexpr size_t kPieceBytes = size_t{8} << 20;
constexpr size_t kMostBlobs = 1024;

}  // namespace

CheckpointPart send_part(int64_t step, int part, int parts, const StateDict& tensors,
                         const std::function<void(Message, int64_t end)>& send) {
  Hasher hasher;
  std::vector<Blob> blobs;
  size_t held = 0;
  int64_t sent = 0;
  const auto flush = [&] {
    if (blobs.empty()) return;
    const int64_t end = sent + static_cast<int64_t>(held);
    send({.kind = "piece",
          .step = step,
          .body = {{"part", part}, {"parts", parts}, {"offset", sent}},
          .blobs = std::exchange(blobs, {})},
         end);
    sent = end;
    held = 0;
  };
  stream_safetensors(tensors, {}, [&](const std::shared_ptr<const void>& owner, const void* bytes, size_t count) {
    hasher.add(bytes, count);
    const std::byte* at = static_cast<const std::byte*>(bytes);
    while (count > 0) {
      const size_t taken = std::min(count, kPieceBytes - held);
      blobs.push_back({owner, at, taken});
      held += taken;
      at += taken;
      count -= taken;
      if (held == kPieceBytes || blobs.size() == kMostBlobs) flush();
    }
  });
  flush();
  return {part_file(part, parts), sent, hasher.digest()};
}

Message PartReceiver::take(const Message& piece) {
  const int part = piece.body.at("part").get<int>(), parts = piece.body.at("parts").get<int>();
  const int64_t offset = piece.body.at("offset").get<int64_t>();
  Message answer{.kind = "taken", .step = piece.step, .body = {{"part", part}, {"parts", parts}}};
  try {
    if (part < 0 || part >= parts) fail("there is no part {} of {}", part, parts);
    if (offset == 0) {
      parts_.erase(piece.sender);
      parts_.emplace(piece.sender,
                     Part{piece.step, part, parts, store_.create_part(piece.step, part_file(part, parts))});
    }
    const auto at = parts_.find(piece.sender);
    if (at == parts_.end()) fail("part {} of {} was given up", part, parts);
    Part& open = at->second;
    if (open.step != piece.step || open.part != part || open.parts != parts || open.file.bytes() != offset)
      fail("a piece of part {} of {} is missing", part, parts);
    for (const Blob& blob : piece.blobs) open.file.write(blob.data, blob.bytes);
    answer.body["offset"] = open.file.bytes();
  } catch (const std::exception& failure) {  // of the disk, or of what it cannot be
    parts_.erase(piece.sender);
    answer.body["error"] = failure.what();
  }
  return answer;
}

Message PartReceiver::finish(Message saved) {
  auto open = parts_.extract(saved.sender);
  if (saved.body.contains("error")) return saved;
  try {
    const int part = saved.body.at("part").get<int>(), parts = saved.body.at("parts").get<int>();
    if (!open || open.mapped().step != saved.step || open.mapped().part != part || open.mapped().parts != parts)
      fail("part {} of {} did not come", part, parts);
    const CheckpointPart written = open.mapped().file.finish();
    if (written.bytes != saved.body.at("bytes").get<int64_t>() ||
        written.digest.hex() != saved.body.at("digest").get<std::string>())
      fail("what came of {} is not what was sent", written.file);
    saved.body["file"] = written.file;
  } catch (const std::exception& failure) {  // of the disk, or of what it cannot be
    saved.body["error"] = failure.what();
  }
  return saved;
}

}  // namespace elinvar
