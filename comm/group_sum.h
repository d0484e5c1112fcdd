#pragma once
// The reduction of one step within a group of GPUs: the sum of the tree over leaves (comm/reduction_tree.h) that many
// members hold parts of, without the host seeing an element. Bit for bit it is what the host would make of them.
//
//   1. Each member lays the tensors of each of its subtree roots out one after another, and sends to each other
//      member the range that belongs to that one, its shard: one group of sends and receives.
//   2. Each adds up its shard along the tree, by the kernels that add leaves, and scales what is to be scaled.
//   3. All send their shard to all: a second group. The result is views of one block of memory.
//
// Nothing waits: the device is given work, and poll() looks whether it is done.
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
    int leaves = 1;                                              // of the whole tree
    std::vector<Shape> shapes = {};                              // of a leaf's tensors, float32
    size_t scaled = 0;                                           // so many of them, the first, are multiplied
    std::optional<double> factor = {};                           // by this
    std::function<void(std::vector<Tensor>& shard)> spoil = {};  // a drill: called with what this member has added up
  };
  // `roots` of each member, which together have every leaf once; `mine` are those of this one, in the same order, on
  // the group's device. Begins at once. Throws UsageError where this is not so, and Failure where the device cannot.
  GroupSum(std::shared_ptr<GpuGroup> group, Options options, std::vector<std::vector<GroupRoot>> roots,
           const std::vector<Subtree>& mine);

  using State = GpuGroup::State;
  State poll(std::string& why);  // goes on as far as it can
  // Of a done one: the tensors of the root, on the device; none if every leaf was absent.
  std::vector<Tensor> values() const;

 private:
  enum class Phase { roots, shards, device, done };
  void exchange_roots(const std::vector<Subtree>& mine);
  void add_up();
  void exchange_shards();

  std::shared_ptr<GpuGroup> group_;
  Options options_;
  FlatLayout layout_;
  std::vector<std::vector<GroupRoot>> roots_;
  std::vector<Subtree> parts_;  // of every root, what lies in this member's shard
  Tensor result_;
  Phase phase_ = Phase::roots;
};

}  // namespace elinvar
