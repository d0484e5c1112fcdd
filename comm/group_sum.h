#pragma once
// The reduction of one step within a group of GPUs: the sum of the tree over leaves (comm/reduction_tree.h) that many
// members hold parts of, without the host seeing an element. Bit for bit it is what the host would make of them.
//
// It goes bucket by bucket, from the last to the first, as backward passes make gradients, so that a bucket is added up
// while the rest of a member's last leaf is still computed. Of each:
//
//   1. Each member lays the tensors of each of its subtree roots out one after another, and sends to each other
//      member the range that belongs to that one, its shard: one group of sends and receives.
//   2. Each adds up its shard along the tree, by the kernels that add leaves, and scales what is to be scaled.
//   3. All send their shard to all: a second group. The result is views of one block of memory.
//
// Nothing waits: the device's side queue for transfers (tensor/side_queue.h) is given work, and poll() looks how far
// it is.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/buckets.h"
#include "comm/gpu_group.h"
#include "comm/reduction_tree.h"

namespace elinvar {

// A subtree that a member holds, as the others know of it.
struct GroupRoot {
  int begin = 0, end = 0;
  bool present = false;  // some leaf of it is
};

// Where tensors lie in one block: each begins at a multiple of kAlign elements.
class FlatLayout {
 public:
  static constexpr int64_t kAlign = 64;
  explicit FlatLayout(std::span<const Shape> shapes);
  int64_t elements() const { return begins_.back(); }
  int64_t begin(size_t tensor) const { return begins_[tensor]; }  // of one past the last: the end
  // What member `m` of `members` adds up: ranges of whole multiples of kAlign, of nearly the same size.
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
    int leaves = 1;                     // of the whole tree
    Buckets buckets = {};               // of a leaf's tensors, of which none is cut: the same at all members
    size_t scaled = 0;                  // so many of them, the first, are multiplied
    std::optional<double> factor = {};  // by this
    // Fault injection: called with what this member has added up of a bucket.
    std::function<void(int bucket, std::vector<Tensor>& shard)> spoil = {};
  };
  // `roots` of each member, which together have every leaf once; UsageError where they do not.
  GroupSum(std::shared_ptr<GpuGroup> group, Options options, std::vector<std::vector<GroupRoot>> roots);

  // What this member has of a bucket, once: the roots that were told, in the same order, with the tensors of the bucket
  // flattened (Buckets::cut), on the group's device. They are made by what was called on the device's side queue for
  // gradients, or what that follows. In any order; UsageError where this is not so.
  void put(int bucket, std::vector<Subtree> mine);

  using State = GpuGroup::State;
  // Goes on as far as it can. Failure where the device cannot.
  State poll(std::string& why);
  int64_t progress() const { return progress_; }  // grows with whatever has happened
  // Of a done one: the tensors of the root, on the device; none if every leaf was absent.
  std::vector<Tensor> values() const;

 private:
  enum class Phase { bucket, roots, shards, device, done };
  FlatLayout layout_of(int bucket) const;
  void exchange_roots(const std::vector<Subtree>& mine);
  void add_up();
  void exchange_shards();

  std::shared_ptr<GpuGroup> group_;
  Options options_;
  FlatLayout layout_;
  std::vector<std::vector<GroupRoot>> roots_;
  std::map<int, std::vector<Subtree>> mine_;  // buckets that have not begun
  int bucket_;                                // the last that has
  std::vector<Subtree> parts_;                // of every root, what lies in this member's shard of it
  Tensor result_, of_bucket_;                 // of all buckets, and the view of one
  Phase phase_ = Phase::bucket;
  int64_t progress_ = 0;
};

}  // namespace elinvar
