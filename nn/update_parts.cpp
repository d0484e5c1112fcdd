#include "nn/update_parts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "tensor/file_tensor.h"
#include "tensor/numerics.h"
#include "tensor/ops/copy.h"
#include "tensor/slice.h"
#include "tensor/trace.h"
#include "tensor/transfer.h"

namespace elinvar {
namespace {

using Slots = std::vector<std::vector<Tensor>>;

// Cuts the pieces, in order, into parts of at most `most` elements, at least a segment. Slice::tensor is the piece.
std::vector<std::vector<Slice>> parts_of(const std::vector<Tensor>& pieces, int64_t most) {
  most = std::max(kRowSegment, most / kRowSegment * kRowSegment);
  std::vector<std::vector<Slice>> parts;
  int64_t room = 0;
  for (size_t i = 0; i < pieces.size(); ++i)
    for (int64_t begin = 0, left = pieces[i].numel(); left > 0;) {
      int64_t n = left <= room ? left : room / kRowSegment * kRowSegment;
      if (n == 0) {
        parts.emplace_back();
        room = most;
        n = std::min(left, room);
      }
      parts.back().push_back({static_cast<int>(i), begin, begin + n});
      begin += n;
      left -= n;
      room -= n;
    }
  return parts;
}

Slots views_of(const Slots& slots, const std::vector<Slice>& part) {
  Slots views(slots.size());
  for (size_t k = 0; k < slots.size(); ++k)
    for (const Slice& s : part) views[k].push_back(view_of(slots[k][static_cast<size_t>(s.tensor)], s));
  return views;
}

void each(const Slots& slots, void (*f)(const Tensor&)) {
  for (const std::vector<Tensor>& slot : slots)
    for (const Tensor& x : slot) f(x);
}

// The state of one part: on its way to the device, there, or on its way back. On the CPU it stays where it is.
class Staged {
 public:
  Staged(Slots state, Device device, const Offload& offload)
      : state_(std::move(state)), device_(device), in_file_(offload.to == Offload::To::file) {
    if (device_ == Device{}) return;
    for (const std::vector<Tensor>& slot : state_)
      for (const Tensor& x : slot) uploads_.emplace_back(x, device_);
  }

  Slots take() {
    if (device_ == Device{}) return state_;
    Slots there(state_.size());
    size_t at = 0;
    for (size_t k = 0; k < state_.size(); ++k)
      for (size_t i = 0; i < state_[k].size(); ++i) there[k].push_back(uploads_[at++].take());
    uploads_.clear();
    return there;
  }

  // Begins to send the state back. The device's copy engine cannot write to files.
  void send(const Slots& there) {
    if (device_ == Device{}) return;
    for (size_t k = 0; k < state_.size(); ++k)
      for (size_t i = 0; i < state_[k].size(); ++i) {
        if (in_file_) downloads_.emplace_back(there[k][i]);
        else downloads_.emplace_back(there[k][i], state_[k][i]);
      }
  }

  void finish() {
    const trace::Pause pause;
    size_t at = 0;
    if (!downloads_.empty())
      for (std::vector<Tensor>& slot : state_)
        for (Tensor& x : slot) {
          const Tensor here = downloads_[at++].wait();
          if (in_file_) copy(here, x);
        }
    if (in_file_) each(state_, hand_back);
  }

 private:
  Slots state_;
  Device device_;
  bool in_file_;
  std::vector<Upload> uploads_;
  std::vector<Download> downloads_;
};

}  // namespace

void update_in_parts(const UpdatePieces& u, const Slots& slots, SlotUse use,
                     const std::function<void(UpdatePart&)>& update) {
  const Device device = u.p.empty() ? Device{} : u.p[0].device();
  if (slots.empty() || !u.offload.elsewhere(device)) {
    UpdatePart all{u.p, u.g, u.of, slots};
    return update(all);
  }
  const std::vector<std::vector<Slice>> parts = parts_of(u.p, u.offload.part);
  // An upload waits for what was called before it, so the next one begins before this part's update is called.
  const auto staged = [&](size_t i) -> std::optional<Staged> {
    if (i >= parts.size()) return std::nullopt;
    if (u.offload.to == Offload::To::file && i + 1 < parts.size()) each(views_of(slots, parts[i + 1]), read_ahead);
    return std::make_optional<Staged>(views_of(slots, parts[i]), device, u.offload);
  };
  std::optional<Staged> before, now, next = staged(0);
  for (size_t i = 0; i < parts.size(); ++i) {
    now = std::move(next);
    next = staged(i + 1);
    UpdatePart part;
    part.slots = now->take();
    for (const Slice& s : parts[i]) {
      const auto piece = static_cast<size_t>(s.tensor);
      part.p.push_back(view_of(u.p[piece], s));
      part.g.push_back(view_of(u.g[piece], s));
      part.of.push_back(u.of[piece]);
    }
    update(part);
    if (use == SlotUse::change) now->send(part.slots);
    if (before) before->finish();
    before = std::move(now);
  }
  if (before) before->finish();
}

}  // namespace elinvar
