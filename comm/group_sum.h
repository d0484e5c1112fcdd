#pragma once
// The reduction of one step within a group of GPUs: the sum over the tree of leaves (tensor/reduction_tree.h), parts of
// which each member holds. No element passes through a host, and the sum has the same bits as one computed on hosts.
//
// Buckets are reduced from the last to the first, in the order in which backward passes make gradients, so that a
// bucket is added up while the rest of a member's last leaf is still computed. For each bucket:
//
//   1. Each member lays out the tensors of its subtree roots one after another, and sends each other member the range
//      that it reduces, its shard. This is one group of sends and receives. Members that hold the same leaves
//      contribute different buckets.
//   2. Each member adds up its shard along the tree, with the kernels that add leaves, and scales it.
//   3. Each member sends its shard to all others in a second group, or with ZeRO to the bucket's keepers. The sums of a
//      bucket are views of one block of memory.
//
// Only the last transfer is seen to be carried, in which each member sends something to each other one, at least a
// byte.
//
// No call waits: work goes to the device's side queue for transfers (tensor/side_queue.h), and poll() reports progress.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/buckets.h"
#include "comm/gpu_group.h"
#include "tensor/reduction_tree.h"

namespace elinvar {

// A subtree that a member holds, without its values. All members know the roots of all members.
struct GroupRoot {
  int begin = 0, end = 0;
  bool present = false;  // at least one leaf of it is present
};

// The layout of tensors in one block; each begins at a multiple of kAlign elements.
class FlatLayout {
 public:
  static constexpr int64_t kAlign = 64;
  explicit FlatLayout(std::span<const Shape> shapes);
  int64_t elements() const { return begins_.back(); }
  int64_t begin(size_t tensor) const { return begins_[tensor]; }  // for the index after the last tensor, the end
  // Returns the range that member `m` of `members` adds up; ranges are multiples of kAlign and nearly equal.
  std::pair<int64_t, int64_t> shard(int m, int members) const;
  Tensor flatten(const std::vector<Tensor>& tensors) const;  // on their device
  std::vector<Tensor> views(const Tensor& flat) const;

 private:
  std::vector<Shape> shapes_;
  std::vector<int64_t> begins_;
};

class GroupSum {
 public:
  struct Options {
    int leaves = 1;        // in the whole tree
    Buckets buckets = {};  // of a leaf's tensors; the same at all members
    size_t scaled = 0;     // how many tensors, from the first on, are multiplied by `factor`
    std::optional<double> factor = {};
    // Whether a member contributes its roots in a bucket. Empty: all contribute to all.
    std::function<bool(int member, int bucket)> contributes = {};
    // The members that get the sums of the first buckets; all members get those of the others.
    std::vector<std::vector<int>> keepers = {};
    // Fault injection: called with this member's sum of a bucket's shard.
    std::function<void(int bucket, std::vector<Tensor>& shard)> spoil = {};
  };
  // `roots` has the subtrees of each member. Throws UsageError unless those that are contributed to a bucket cover
  // every leaf exactly once.
  GroupSum(std::shared_ptr<GpuGroup> group, Options options, std::vector<std::vector<GroupRoot>> roots);

  // Gives this member's part of a bucket, once for each that it contributes, in any order of buckets: its roots in the
  // order given to the constructor, with the tensors of the bucket flattened (Buckets::cut), on the group's device. The
  // work that makes them must be on the device's side queue for gradients, or before it. Throws UsageError for anything
  // else.
  void put(int bucket, std::vector<Subtree> mine);

  using State = GpuGroup::State;
  // Continues as far as possible without waiting. Throws Failure if the device fails.
  State poll(std::string& why);
  int64_t progress() const { return progress_; }  // grows whenever something has happened
  // Returns the sums of the buckets that this member gets once done, as slices on the device; empty if every leaf was
  // absent.
  std::map<int, std::vector<Tensor>> sums() const;

 private:
  enum class Phase { bucket, roots, shards, device, done };
  bool contributes(int member, int bucket) const {
    return !options_.contributes || options_.contributes(member, bucket);
  }
  bool gets(int member, int bucket) const;
  FlatLayout layout_of(int bucket) const;
  void exchange_roots(const std::vector<Subtree>& mine);
  void add_up();
  void exchange_shards();

  std::shared_ptr<GpuGroup> group_;
  Options options_;
  std::vector<std::vector<GroupRoot>> roots_;
  std::map<int, std::vector<Subtree>> mine_;  // for buckets that have not begun
  int bucket_;                                // the latest that has begun
  std::vector<Subtree> parts_;                // this member's shard of every root
  Tensor shard_;                              // .. added up
  std::map<int, Tensor> sums_;                // of each bucket that has begun and that this member gets, in its layout
  Phase phase_ = Phase::bucket;
  int64_t progress_ = 0;
};

}  // namespace elinvar
