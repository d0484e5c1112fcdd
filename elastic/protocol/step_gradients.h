#pragma once
// The rank gradients of a member's step: which of them it has to compute, those that it has computed, and its
// contribution of them to the reduction.
//
// The last rank gradient of a step may be put tensor by tensor, so that buckets are sent while the rest of its backward
// pass runs: opens() says whether this one may, open() begins it once its targets are counted, put() adds a gradient,
// and add() ends it, with the same tensors. Gradients on a GPU are put by the thread that uses its side queue for
// gradients (tensor/side_queue.h), which the stream has joined by the time of add().
//
// With ZeRO's second stage every rank gradient may be put, because each is contributed by itself, and close() ends it:
// none of its tensors are kept. One that comes whole is contributed in the same way. After a fence all are computed
// again.
//
// The members of a model replica have the same virtual ranks (elastic/protocol/model_replica.h). Each keeps and
// contributes the tensors that it is to contribute, and one reports the facts.
#include <map>
#include <optional>
#include <vector>

#include "elastic/protocol/passing_gradient.h"
#include "elastic/protocol/rank_gradients.h"
#include "elastic/protocol/scaling_progress.h"
#include "elastic/protocol/step_reduction.h"

namespace elinvar {

class StepGradients {
 public:
  struct Options {
    int vranks = 1;
    int64_t checkpoint_every = 0;    // updates; 0: only at the end
    int64_t state_digest_every = 0;  // updates; 0: only at checkpoints and at the end
  };
  StepGradients(const Options& options, const MemberPosition& position, const ScalingProgress& scaling,
                GradientLayout& layout, const ModelReplica& replica, StepAudit& audit, StepReduction& reduction);

  // Returns the virtual ranks that this member still has to compute, ascending, followed by an audited one.
  std::vector<int> todo() const;
  // Returns whether the virtual rank is assigned to this member; an audited one may not be.
  bool owns(int vrank) const;
  // Returns whether the gradient that this member computes of it now counts, and is not for an audit alone.
  bool counts(int vrank) const { return owns(vrank) && !computed_.has(vrank); }
  // Whether this member computes it together with the others of its model replica, and so has only the gradients of its
  // own part of the network. What it computes for an audit, it computes alone.
  bool together(int vrank) const { return replica_.divided() && counts(vrank); }
  // In which generation the computation of a rank gradient begins, and whether others compute it with this member.
  struct Begun {
    int64_t generation = 0;
    bool together = false;
  };
  Begun begun(int vrank) const { return {position_.number(), together(vrank)}; }
  // Returns whether a gradient that was begun so is of no use in the current generation: those that computed it
  // together are not together any more, or it was computed alone and others now wait for this member's values of it.
  bool stale(int vrank, const Begun& begun) const {
    return begun.generation != position_.number() &&
           (begun.together || together(vrank) ||
            (position_.generation && position_.generation->held_with(position_.completed) >= 3));
  }
  void add(int64_t step, int vrank, RankGradient gradient, double seconds);  // drops a gradient that comes too late

  bool opens(int vrank) const;
  bool by_rank() const { return reduction_.by_rank(); }  // close() ends what open() begins
  void open(int64_t step, int vrank, int64_t count, const std::vector<Tensor>& batch_statistics);
  bool has_open() const { return computed_.is_open() || passing_; }  // false after a fence in some cases
  // With `passes` the value is valid only until add(): one call copies all such values put since the last complete
  // bucket.
  void put(int tensor, Tensor value, bool passes = false);
  // Ends a rank gradient that was put and of which there are facts alone, with its `digest` if it is compared. Drops it
  // if a fence came in between, or if this member computed it for an audit only.
  void close(int64_t step, int vrank, RankGradient gradient, double seconds);

  // Adds what the members of a model replica know together of a rank gradient that was added or closed: its facts, and
  // its digest if an audit compares it.
  void complete(int64_t step, int vrank, RankFacts facts, const std::optional<Digest>& digest);
  // Attaches data to the facts of a virtual rank, which another member of the replica reports.
  void attach(int vrank, JsonValue attached) { attached_[vrank] = std::move(attached); }

  // Returns whether rank gradients of this step are reduced on the device that computes them, by a group of GPUs or by
  // this member alone. Then they must be on that device, else on the CPU.
  bool stay_on_device() const;
  // The device has no room for the next rank gradient in addition to the existing ones: a member that is alone moves
  // them to the CPU, and keeps doing so. Returns false if nothing can be moved.
  bool move_to_cpu();

  bool digest_due() const;  // whether contribute() needs the digest of the current state
  // Sends this member's share of the reduction.
  // With ZeRO: `chunks` are those of OptimizerShards::digested().
  void contribute(const std::optional<Digest>& state, const StateDigests& parts = {},
                  std::vector<messages::StateChunks> chunks = {});
  // --- Called by the member.
  void fence();      // drops the rank gradients if none are kept (StepReduction::keeps_none)
  void next_step();  // drops the rank gradients

 private:
  const Buckets& begin();
  void pass_on(int vrank, RankGradient gradient);
  void keep_contributed(RankGradient& gradient) const;

  Options options_;
  const MemberPosition& position_;
  const ScalingProgress& scaling_;
  GradientLayout& layout_;
  const ModelReplica& replica_;
  StepAudit& audit_;
  StepReduction& reduction_;
  RankGradients computed_;                  // the rank gradients of step `completed`
  std::optional<PassingGradient> passing_;  // with by_rank(): the open rank gradient
  std::map<int, JsonValue> attached_;       // by virtual rank
  bool crowded_ = false;                    // the device has no room for rank gradients
};

}  // namespace elinvar
