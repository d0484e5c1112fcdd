#pragma once
// The part of an exchange in which a group of GPUs reduces the tensors (comm/group_sum.h).
// As soon as a member contributes to a bucket, it tells all others which roots it has; when it knows the roots of all
// members, it starts the buckets to which it has contributed. No owner adds up a bucket alone, and no tensor passes
// through a host. Members of a model replica have the same roots, and contribute different buckets of them.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/group_sum.h"
#include "elastic/protocol/message.h"

namespace elinvar {

class GroupExchange {
 public:
  struct Options {
    int vranks = 1, members = 1;
    int me = 0;  // this member's index
    const Buckets* buckets = nullptr;
    int gradients = 0;                                                       // tensors that are scaled
    std::function<bool(int member, int bucket)> contributes = {};            // GroupSum::Options
    std::vector<std::vector<int>> keepers = {};                              // GroupSum::Options
    std::function<void(int bucket, std::vector<Tensor>& shard)> spoil = {};  // GroupSum::Options
  };
  GroupExchange(std::shared_ptr<GpuGroup> group, Options options)
      : group_(std::move(group)), options_(std::move(options)) {}

  Device device() const { return group_->device(); }
  // Tells the others this member's roots, once. A rank gradient that is still being computed is told too, because it
  // will exist. `count`: targets in the rank gradients whose facts this member reports.
  void tell_roots(const std::vector<const Subtree*>& roots, int64_t count, const SendToMember& send);
  // See Exchange::contribute.
  void contribute(int bucket, const std::vector<const Subtree*>& roots, int64_t count, const SendToMember& send);
  std::string receive(const messages::GroupRoots& told);  // returns "" or why the message is invalid
  bool work();                                            // returns true when the group has just finished
  bool done() const { return done_; }
  // The group's progress, which grows, while it is at work; work() advances it. Else null.
  std::optional<int64_t> progress() const { return sum_ ? std::optional(sum_->progress()) : std::nullopt; }
  const std::string& trouble() const { return trouble_; }  // why the group will not finish, or ""
  std::string missing() const;                             // messages that have not arrived, for people; "": none
  // Returns the sums of the buckets that this member gets, once; empty unless done, or if every leaf was absent.
  std::map<int, std::vector<Tensor>> take_sums() { return std::exchange(sums_, {}); }

 private:
  bool know_all_roots() const { return static_cast<int>(roots_.size()) == options_.members; }

  std::shared_ptr<GpuGroup> group_;
  Options options_;
  std::map<int, std::vector<GroupRoot>> roots_;      // by member
  int64_t count_ = 0;                                // targets in the rank gradients of these members
  std::map<int, std::vector<Subtree>> contributed_;  // by bucket: this member's roots that the group does not have yet
  std::unique_ptr<GroupSum> sum_;
  std::map<int, std::vector<Tensor>> sums_;
  bool done_ = false;
  std::string trouble_;
};

}  // namespace elinvar
