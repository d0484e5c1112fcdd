// An exchange whose tensors a group of GPUs reduces.
#include <algorithm>
#include <utility>

#include "elastic/protocol/exchange.h"

namespace elinvar {

void Exchange::use(std::shared_ptr<GpuGroup> group, const Buckets* whole) {
  group_ = std::move(group);
  buckets_ = whole;
  state_.resize(static_cast<size_t>(bucket_count()));
}

// Announces the roots. A rank gradient that is still being computed is announced too, because it will exist.
void Exchange::tell_roots(const std::vector<const Subtree*>& roots, int64_t count, const Send& send) {
  if (group_roots_.contains(me_)) return;
  messages::GroupRoots told{.member = me_, .count = count};
  std::vector<GroupRoot> own;
  for (const Subtree* root : roots) {
    told.roots.push_back({root->begin, root->end, !root->values.empty()});
    own.push_back({root->begin, root->end, !root->values.empty()});
  }
  for (int other = 0; other < members_; ++other)
    if (other != me_) send(other, told);
  group_roots_[me_] = std::move(own);
  group_count_ += count;
}

std::string Exchange::receive(const messages::GroupRoots& told) {
  if (!group_ || told.member < 0 || told.member >= members_ || group_roots_.contains(told.member))
    return "roots that are not expected";
  std::vector<GroupRoot> roots;
  for (const messages::Root& root : told.roots) {
    if (!is_node(root.begin, root.end, vranks_)) return "a root is no node of the tree";
    roots.push_back({root.begin, root.end, root.present});
  }
  group_count_ += told.count;
  group_roots_[told.member] = std::move(roots);
  return "";
}

// A failure belongs to the group, or to the device while the group uses it: the host can continue without both.
bool Exchange::work_in_group() {
  const bool done = std::all_of(state_.begin(), state_.end(), [](const Bucket& b) { return b.done; });
  if (done || !trouble_.empty() || static_cast<int>(group_roots_.size()) < members_) return false;
  try {
    if (!sum_) {
      std::vector<std::vector<GroupRoot>> roots;
      for (const auto& [member, told] : group_roots_) roots.push_back(told);
      GroupSum::Options options{.leaves = vranks_, .buckets = *buckets_, .scaled = static_cast<size_t>(gradients_)};
      if (group_count_ > 0) options.factor = 1.0 / static_cast<double>(group_count_);
      options.spoil = spoil_;
      sum_ = std::make_unique<GroupSum>(group_, std::move(options), std::move(roots));
    }
    for (int b = 0; b < bucket_count(); ++b) {
      Bucket& bucket = state_[static_cast<size_t>(b)];
      if (bucket.contributed && !std::exchange(bucket.given, true)) sum_->put(b, std::move(bucket.roots));
    }
    const GroupSum::State state = sum_->poll(trouble_);
    if (state == GroupSum::State::failed) sum_.reset();
    if (state != GroupSum::State::done) return false;
    values_ = sum_->values();
  } catch (const std::exception& failure) {
    trouble_ = failure.what();
    sum_.reset();
    return false;
  }
  for (Bucket& bucket : state_) bucket.done = true;
  sum_.reset();
  return true;
}

}  // namespace elinvar
