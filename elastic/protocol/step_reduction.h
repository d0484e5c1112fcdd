#pragma once
// The reduction of a member's step: it begins the exchange with the other members, or listens to theirs, reduces what
// arrives, and makes the result for the loop once the audit has no objection.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/exchange_inbox.h"
#include "elastic/protocol/gradient_layout.h"
#include "elastic/protocol/member_groups.h"
#include "elastic/protocol/model_replica.h"
#include "elastic/protocol/optimizer_shards.h"
#include "elastic/protocol/step_audit.h"

namespace elinvar {

class StepReduction {
 public:
  struct Options {
    int vranks = 1;
    // Fault injection: damages the sums that this member makes in `step` (Exchange::Options).
    std::function<void(int64_t step, int bucket, std::vector<Tensor>& sums)> spoil = {};
  };
  StepReduction(Options options, const MemberPosition& position, const GradientLayout& layout, ExchangeInbox& inbox,
                StepAudit& audit, MemberGroups& groups, OptimizerShards& shards, const ModelReplica& replica);

  // --- Called by the loop. Sums are made on the caller's CPU stream.
  bool work();                  // reduces one bucket that is ready; returns false if there is none
  bool in_group() const;        // the group of this generation adds up the step's gradients
  std::string missing() const;  // what the reduction waits for, for people, or ""
  // Returns the progress of a group of GPUs, which grows, while the reduction waits for it; else null. No message
  // announces it, so call Member::reduce() repeatedly.
  std::optional<int64_t> group_progress() const;
  Reduced take_reduced();  // the result, once

  // --- Called by the member and its StepGradients.
  // Whether a member drops its rank gradients at a fence: with ZeRO's second stage, with model replicas, and if it
  // lacks parameters, without which it cannot complete an open one.
  bool keeps_none() const {
    return shards_.zero() >= 2 || shards_.held_with(position_.completed) >= 3 || replica_.divides();
  }
  // The contributors of each bucket of the step's exchange. Requires the layout.
  const Contributions& contributions() const { return replica_.contributions(buckets()); }
  // With ZeRO's second stage, if there are other members, each rank gradient is contributed by itself.
  bool by_rank() const {
    return shards_.zero() >= 2 && position_.active() && position_.members() > 1 && !position_.last() && layout_.known();
  }
  // A fence ends the exchange. With ZeRO, another member may have completed it: keeps this member's sums for listen().
  void fence();
  void forget() { retained_.reset(); }  // no member has completed it
  void send_part();                     // sends the part of the trailer if what held it back has arrived
  const Buckets* begin();               // begins the exchange, and returns its buckets
  bool begun() const { return inbox_.exchange() != nullptr; }
  // Contributes to one bucket, if it is this member's to contribute, and the exchange has begun and no fence has ended
  // it, or to all that is left of it (Exchange::contribute). The latter begins the exchange if need be, and adds to
  // `part` what the reduction knows.
  void contribute(int bucket, const std::vector<const Subtree*>& roots, int64_t count);
  // With by_rank(): contributes a rank gradient to one bucket; its buckets must be those of begin().
  void contribute(int bucket, int vrank, const std::vector<Tensor>& slices, int64_t count);
  void contribute(std::vector<Subtree> roots, messages::TrailerPart part, const StateDigests& digests);
  void listen();  // listens to an exchange of other members to get its result
  enum class Progress { waiting, complete, disagreed, abandoned };  // disagreed: an audit has just found a difference
  Progress reduce();                                                // reduces buckets that are ready
  // The result as other members need it.
  struct Result {
    std::vector<Tensor> values;
    messages::Trailer trailer;
    int64_t samples = 0;
    bool in_group = false;
    std::vector<int> kept = {};  // with ZeRO: the buckets of parameters that this member updates
    bool listened = false;       // this member took no part in the exchange that is complete
  };
  Result take();  // ends a complete reduction

 private:
  const Buckets& buckets() const {
    return in_group() && !layout_.sharded() ? layout_.whole_buckets() : *layout_.buckets();
  }
  std::vector<int> owners() const;
  std::vector<int> kept_tables() const;
  const Buckets* step_buckets() const { return position_.last() ? nullptr : layout_.buckets(); }

  Options options_;
  const MemberPosition& position_;
  const GradientLayout& layout_;
  ExchangeInbox& inbox_;
  StepAudit& audit_;
  MemberGroups& groups_;
  OptimizerShards& shards_;
  const ModelReplica& replica_;
  Reduced reduced_;
  struct Retained {
    int64_t step = 0;
    std::map<int, std::vector<Tensor>> sums;
    std::vector<int> tables;  // the buckets of sparse tables that the member kept then
  };
  std::optional<Retained> retained_;
};

}  // namespace elinvar
