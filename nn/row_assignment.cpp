#include "nn/row_assignment.h"

#include <algorithm>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/ops/copy.h"

namespace elinvar {

// Assignments of a run are prefixes of one another, so it is enough to look at the end of this one.
bool RowAssignment::changed() const {
  const int64_t begin = std::max<int64_t>(0, used_ - 1), end = std::min(used_ + 1, capacity());
  const Tensor around = ids_->value.slice(0, begin, end).to(Device{});
  const auto ids = around.span<int64_t>();
  const bool same = used_ == 0 || ids.front() == last_, free = used_ == capacity() || ids.back() == -1;
  return !same || !free;
}

bool RowAssignment::refresh() {
  if (!changed()) return false;
  rows_.clear();
  used_ = 0;
  const Tensor here = ids_->value.to(Device{});
  for (const int64_t id : here.span<int64_t>()) {
    if (id < 0) break;
    rows_.emplace(id, used_++);
    last_ = id;
  }
  return true;
}

std::optional<int64_t> RowAssignment::row_of(int64_t id) const {
  const auto found = rows_.find(id);
  return found == rows_.end() ? std::nullopt : std::optional(found->second);
}

void RowAssignment::append(std::span<const int64_t> ids) {
  if (ids.empty()) return;
  const auto count = static_cast<int64_t>(ids.size());
  invariant(used_ + count <= capacity(), "there are rows for these ids");
  Tensor place = ids_->value.slice(0, used_, used_ + count);
  copy(Tensor::from(ids, {count}).to(place.device()), place);
  for (const int64_t id : ids) rows_.emplace(id, used_++);
  last_ = ids.back();
}

}  // namespace elinvar
