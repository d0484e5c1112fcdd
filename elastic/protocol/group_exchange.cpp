#include "elastic/protocol/group_exchange.h"

#include <fmt/format.h>

#include <utility>

namespace elinvar {

void GroupExchange::contribute(int bucket, const std::vector<const Subtree*>& roots, int64_t count,
                               const SendToMember& send) {
  tell_roots(roots, count, send);
  std::vector<Subtree>& own = contributed_[bucket];
  for (const Subtree* root : roots) {
    own.push_back({root->begin, root->end, {}});
    if (!root->values.empty()) own.back().values = options_.buckets->cut(bucket, root->values);
  }
}

void GroupExchange::tell_roots(const std::vector<const Subtree*>& roots, int64_t count, const SendToMember& send) {
  const int me = options_.me;
  if (roots_.contains(me)) return;
  messages::GroupRoots told{.member = me, .count = count};
  std::vector<GroupRoot> own;
  for (const Subtree* root : roots) {
    told.roots.push_back({root->begin, root->end, !root->values.empty()});
    own.push_back({root->begin, root->end, !root->values.empty()});
  }
  for (int other = 0; other < options_.members; ++other)
    if (other != me) send(other, told);
  roots_[me] = std::move(own);
  count_ += count;
}

std::string GroupExchange::receive(const messages::GroupRoots& told) {
  if (told.member < 0 || told.member >= options_.members || roots_.contains(told.member))
    return "roots that are not expected";
  std::vector<GroupRoot> roots;
  for (const messages::Root& root : told.roots) {
    if (!is_node(root.begin, root.end, options_.vranks)) return "a root is no node of the tree";
    roots.push_back({root.begin, root.end, root.present});
  }
  count_ += told.count;
  roots_[told.member] = std::move(roots);
  return "";
}

// A failure belongs to the group, or to the device while the group uses it: the host can continue without both.
bool GroupExchange::work() {
  if (done_ || !trouble_.empty() || !know_all_roots()) return false;
  try {
    if (!sum_) {
      std::vector<std::vector<GroupRoot>> roots;
      for (const auto& [member, told] : roots_) roots.push_back(told);
      GroupSum::Options options{.leaves = options_.vranks,
                                .buckets = *options_.buckets,
                                .scaled = static_cast<size_t>(options_.gradients),
                                .contributes = options_.contributes,
                                .keepers = options_.keepers,
                                .spoil = options_.spoil};
      if (count_ > 0) options.factor = 1.0 / static_cast<double>(count_);
      sum_ = std::make_unique<GroupSum>(group_, std::move(options), std::move(roots));
    }
    for (auto& [bucket, own] : std::exchange(contributed_, {})) sum_->put(bucket, std::move(own));
    const GroupSum::State state = sum_->poll(trouble_);
    if (state == GroupSum::State::failed) sum_.reset();
    if (state != GroupSum::State::done) return false;
    sums_ = sum_->sums();
  } catch (const std::exception& failure) {
    trouble_ = failure.what();
    sum_.reset();
    return false;
  }
  done_ = true;
  sum_.reset();
  return true;
}

std::string GroupExchange::missing() const {
  if (know_all_roots()) return "";
  return fmt::format("the roots of {} of {} members", static_cast<size_t>(options_.members) - roots_.size(),
                     options_.members);
}

}  // namespace elinvar
