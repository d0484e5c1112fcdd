#pragma once
// The rank gradients of one step that a member has computed: their facts, and their tensors, which are reduced as they
// come (comm/reduction_tree.h).
// They survive a fence: the subtree roots go out again in the next generation.
//
// One leaf at a time may be open: its gradients come one by one while its backward pass runs, so that a bucket can
// leave before the leaf is whole.
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "comm/buckets.h"
#include "comm/reduction_tree.h"
#include "elastic/step/step.h"

namespace elinvar {

class RankGradients {
 public:
  explicit RankGradients(int vranks) : vranks_(vranks) {}

  bool has(int vrank) const { return facts_.contains(vrank); }
  const std::map<int, RankFacts>& facts() const { return facts_; }  // by virtual rank
  double seconds() const;                                           // that a leaf takes; 0: none was measured
  std::vector<const Subtree*> roots() const;                        // of what is reduced so far, ascending

  // A leaf's gradients and batch statistics, unless it is the open one, which is closed. `seconds` that are 0 do not
  // count.
  void add(int vrank, RankGradient leaf, double seconds);

  // Opens a leaf with so many targets. `buckets` outlive it; their shapes are those of gradients and batch_statistics.
  void open(int vrank, int64_t count, const Buckets& buckets);
  bool is_open() const { return opened_.has_value(); }
  int64_t count() const;  // of targets in all leaves, the open one included
  // One of its tensors, by its place among gradients and batch_statistics. One that `passes` is there until the next
  // bucket is whole: what is kept of it is a copy, made of all that came since the bucket before by one call. Returns
  // the buckets that are whole by it.
  std::vector<int> put(int tensor, Tensor value, bool passes);

  void move_to(Device device);  // all that is reduced so far
  void drop_sums();             // they have been used up
  void clear();

 private:
  struct Opened {
    int vrank = 0;
    int64_t count = 0;
    const Buckets* buckets = nullptr;
    std::vector<int> missing = {};                        // tensors, of each bucket
    std::vector<std::pair<size_t, Tensor>> passing = {};  // that have come, and are to be copied
    Device device = {};                                   // where the tensors are that have come
  };
  TreeReducer& reducer_of(int vrank);
  void keep_passing(TreeReducer& fold);

  int vranks_;
  std::map<int, RankFacts> facts_;
  std::vector<TreeReducer> reducers_;
  std::optional<Opened> opened_;  // on its way into one of the reducers
  double seconds_ = 0;
  int measured_ = 0;
};

}  // namespace elinvar
