#pragma once
// The rank gradients of one step that a member has computed: their facts, and their tensors, which are reduced as they
// arrive (tensor/reduction_tree.h). They survive a fence: the subtree roots are sent again in the next generation.
//
// One rank gradient at a time may be open: its tensors arrive one by one while its backward pass runs, so that a bucket
// can be sent before the rank gradient is complete.
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "comm/buckets.h"
#include "tensor/reduction_tree.h"
#include "elastic/step/step.h"

namespace elinvar {

class RankGradients {
 public:
  explicit RankGradients(int vranks) : vranks_(vranks) {}

  bool has(int vrank) const { return facts_.contains(vrank); }
  const std::map<int, RankFacts>& facts() const { return facts_; }  // by virtual rank
  double seconds() const;                     // mean time of a rank gradient in seconds; 0: not measured
  std::vector<const Subtree*> roots() const;  // roots of all tensors reduced so far, ascending

  // Adds the gradients and batch statistics of a virtual rank; if it is open, closes it, because its tensors are
  // reduced already. A value of 0 for `seconds` does not count as a measurement.
  void add(int vrank, RankGradient gradient, double seconds);

  // Adds the facts of a virtual rank alone, whose tensors others have.
  void record(int vrank, RankFacts facts, double seconds);

  // Replaces the facts of a virtual rank.
  void amend(int vrank, RankFacts facts) { facts_.at(vrank) = std::move(facts); }

  // Opens a rank gradient with `count` targets. `buckets` must outlive it; their shapes are those of gradients and
  // batch statistics, of which `absent` will not be put.
  void open(int vrank, int64_t count, const Buckets& buckets, size_t absent = 0);
  bool is_open() const { return opened_.has_value(); }
  int64_t count() const;  // targets in all rank gradients, including the open one
  // Puts one tensor of the open rank gradient, by its index among gradients and batch statistics. A tensor that
  // `passes` is valid only until the next bucket is complete: then one call copies all such tensors put since the
  // previous bucket. Returns the buckets that this tensor completes.
  std::vector<int> put(int tensor, Tensor value, bool passes);

  void move_to(Device device);  // moves all tensors reduced so far
  void drop_sums();             // the sums have been consumed
  void clear();

 private:
  struct Opened {
    int vrank = 0;
    int64_t count = 0;
    const Buckets* buckets = nullptr;
    std::vector<int> missing = {};                        // the number of missing tensors of each bucket
    std::vector<std::pair<size_t, Tensor>> passing = {};  // tensors put so far that must be copied
    Device device = {};                                   // the device of the tensors put so far
  };
  TreeReducer& reducer_of(int vrank);
  void keep_passing(TreeReducer& reducer);

  int vranks_;
  std::map<int, RankFacts> facts_;
  std::vector<TreeReducer> reducers_;
  std::optional<Opened> opened_;  // being reduced in one of the reducers
  double seconds_ = 0;
  int measured_ = 0;
};

}  // namespace elinvar
