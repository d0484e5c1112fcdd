#include "elastic/protocol/step_leaves.h"

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/ops/copies.h"
#include "tensor/side_queue.h"

namespace elinvar {

double StepLeaves::seconds() const { return measured_ > 0 ? seconds_ / measured_ : 0; }

std::vector<const Subtree*> StepLeaves::roots() const {
  std::vector<const Subtree*> roots;
  for (const TreeFold& fold : folds_)
    for (const Subtree& root : fold.subtrees()) roots.push_back(&root);
  std::sort(roots.begin(), roots.end(), [](const Subtree* a, const Subtree* b) { return a->begin < b->begin; });
  return roots;
}

// The one that ends where this leaf begins, or a new one.
TreeFold& StepLeaves::fold_of(int vrank) {
  for (TreeFold& fold : folds_)
    if (fold.subtrees().back().end == vrank) return fold;
  return folds_.emplace_back(vranks_);
}

void StepLeaves::add(int vrank, Leaf leaf, double seconds) {
  facts_.emplace(vrank, std::move(leaf.facts));
  if (seconds > 0) {
    seconds_ += seconds;
    ++measured_;
  }
  if (opened_) {  // it is folded already
    invariant(opened_->vrank == vrank, "one leaf at a time is open");
    for (TreeFold& fold : folds_) fold.close();
    return opened_.reset();
  }
  std::vector<Tensor> values = std::move(leaf.gradients);
  std::move(leaf.terms.begin(), leaf.terms.end(), std::back_inserter(values));
  fold_of(vrank).add(vrank, std::move(values));
}

void StepLeaves::open(int vrank, int64_t count, const Buckets& buckets) {
  fold_of(vrank).open(vrank, buckets.shapes().size());
  opened_ = {.vrank = vrank, .count = count, .buckets = &buckets};
  for (int b = 0; b < buckets.count(); ++b) opened_->missing.push_back(static_cast<int>(buckets.slices(b).size()));
}

int64_t StepLeaves::count() const {
  int64_t count = opened_ ? opened_->count : 0;
  for (const auto& [vrank, facts] : facts_) count += facts.count;
  return count;
}

std::vector<int> StepLeaves::put(int tensor, Tensor value, bool passes) {
  opened_->device = value.device();
  TreeFold& fold = fold_of(opened_->vrank + 1);  // the one that it ended
  if (passes && fold.keeps() && value.numel() > 0)
    opened_->passing.emplace_back(static_cast<size_t>(tensor), std::move(value));
  else fold.put(static_cast<size_t>(tensor), std::move(value));
  std::vector<int> whole;
  const auto [first, last] = opened_->buckets->of(tensor);
  for (int b = first; b < last; ++b)
    if (--opened_->missing[static_cast<size_t>(b)] == 0) whole.push_back(b);
  if (!whole.empty()) keep_passing(fold);
  return whole;
}

void StepLeaves::keep_passing(TreeFold& fold) {
  std::vector<Tensor> kept;
  for (const auto& [tensor, value] : opened_->passing) kept.push_back(value);
  kept = copies(kept);
  for (size_t i = 0; i < kept.size(); ++i) fold.put(opened_->passing[i].first, std::move(kept[i]));
  opened_->passing.clear();
}

void StepLeaves::move_to(Device device) {
  for (TreeFold& fold : folds_) fold.move_to(device);
}

void StepLeaves::drop_sums() { folds_.clear(); }

void StepLeaves::clear() {
  if (opened_)
    SideQueue::join(opened_->device, SideQueue::Of::gradients);  // it may still be adding to what is let go of
  *this = StepLeaves(vranks_);
}

}  // namespace elinvar
