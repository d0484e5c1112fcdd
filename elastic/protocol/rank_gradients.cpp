#include "elastic/protocol/rank_gradients.h"

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/ops/copies.h"
#include "tensor/side_queue.h"

namespace elinvar {

double RankGradients::seconds() const { return measured_ > 0 ? seconds_ / measured_ : 0; }

std::vector<const Subtree*> RankGradients::roots() const {
  std::vector<const Subtree*> roots;
  for (const TreeReducer& reducer : reducers_)
    for (const Subtree& root : reducer.subtrees()) roots.push_back(&root);
  std::sort(roots.begin(), roots.end(), [](const Subtree* a, const Subtree* b) { return a->begin < b->begin; });
  return roots;
}

// Returns the reducer that ends where this rank gradient begins, or a new one.
TreeReducer& RankGradients::reducer_of(int vrank) {
  for (TreeReducer& reducer : reducers_)
    if (reducer.subtrees().back().end == vrank) return reducer;
  return reducers_.emplace_back(vranks_);
}

void RankGradients::record(int vrank, RankFacts facts, double seconds) {
  facts_.emplace(vrank, std::move(facts));
  if (seconds <= 0) return;
  seconds_ += seconds;
  ++measured_;
}

void RankGradients::add(int vrank, RankGradient gradient, double seconds) {
  record(vrank, std::move(gradient.facts), seconds);
  if (opened_) {  // already reduced
    invariant(opened_->vrank == vrank, "one rank gradient at a time is open");
    for (TreeReducer& reducer : reducers_) reducer.close();
    return opened_.reset();
  }
  std::vector<Tensor> values = std::move(gradient.gradients);
  std::move(gradient.batch_statistics.begin(), gradient.batch_statistics.end(), std::back_inserter(values));
  reducer_of(vrank).add(vrank, std::move(values));
}

void RankGradients::open(int vrank, int64_t count, const Buckets& buckets, size_t absent) {
  reducer_of(vrank).open(vrank, buckets.shapes().size(), absent);
  opened_ = {.vrank = vrank, .count = count, .buckets = &buckets};
  for (int b = 0; b < buckets.count(); ++b) opened_->missing.push_back(static_cast<int>(buckets.slices(b).size()));
}

int64_t RankGradients::count() const {
  int64_t count = opened_ ? opened_->count : 0;
  for (const auto& [vrank, facts] : facts_) count += facts.count;
  return count;
}

std::vector<int> RankGradients::put(int tensor, Tensor value, bool passes) {
  opened_->device = value.device();
  TreeReducer& reducer = reducer_of(opened_->vrank + 1);  // the reducer that ends with the open gradient
  if (passes && reducer.keeps() && value.numel() > 0)
    opened_->passing.emplace_back(static_cast<size_t>(tensor), std::move(value));
  else reducer.put(static_cast<size_t>(tensor), std::move(value));
  std::vector<int> whole;
  const auto [first, last] = opened_->buckets->of(tensor);
  for (int b = first; b < last; ++b)
    if (--opened_->missing[static_cast<size_t>(b)] == 0) whole.push_back(b);
  if (!whole.empty()) keep_passing(reducer);
  return whole;
}

void RankGradients::keep_passing(TreeReducer& reducer) {
  std::vector<Tensor> kept;
  for (const auto& [tensor, value] : opened_->passing) kept.push_back(value);
  kept = copies(kept);
  for (size_t i = 0; i < kept.size(); ++i) reducer.put(opened_->passing[i].first, std::move(kept[i]));
  opened_->passing.clear();
}

void RankGradients::move_to(Device device) {
  for (TreeReducer& reducer : reducers_) reducer.move_to(device);
}

void RankGradients::drop_sums() { reducers_.clear(); }

void RankGradients::clear() {
  if (opened_)
    // The queue may still be adding to tensors that are dropped here.
    SideQueue::join(opened_->device, SideQueue::Of::gradients);
  *this = RankGradients(vranks_);
}

}  // namespace elinvar
