#pragma once
// The values of the parameters after an update of which each member made a part (ZeRO, ARRANGEMENT.md): the owner of a
// bucket sends the others its parameters. Begins when a member has the trailer of the step, and ends when it has all
// values; the member has then made the update. The values go through a group of GPUs if that has added up the
// gradients, or, with ZeRO's second stage, if it exists. Owners send sums over their buckets in messages before the
// update if the update needs sums over whole parameters (LARS, LAMB).
//
// Whoever has the trailer knows that all keepers have the sums, so the values can be made even if members die. The step
// is made, so its values count in all later generations. At a fence a member asks the keepers of the buckets whose
// values it lacks (`want`), and, once a generation begins, those members that provide their state.
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/gpu_group.h"
#include "elastic/protocol/catching_up.h"
#include "elastic/protocol/optimizer_shards.h"

namespace elinvar {

class ValueExchange {
 public:
  ValueExchange(const MemberPosition& position, const GradientLayout& layout, const CatchingUp& catching_up,
                const OptimizerShards& shards, MemberOutbox& outbox)
      : position_(position), layout_(layout), catching_up_(catching_up), shards_(shards), outbox_(outbox) {}

  // --- Called by the member.
  // The trailer of a step has come. `sends`: this member was in the generation that made the step, which is still the
  // current one, and sends the values of buckets that it owns. It lacks those of all buckets but the ones that it
  // `keeps`. Through a `group` the values go in the same way at all members, so none may use one that others do not.
  void begin(int64_t step, bool sends, std::vector<int> keeps, std::shared_ptr<GpuGroup> group = {});
  void receive(const Message& message, const messages::BucketValues& values);
  void receive(const Message& message, const messages::BucketSums& sums);
  void receive(const Message& message, const messages::WantValues& want);
  void review();                            // the position has changed: takes values that came early
  void fence(const std::string& endpoint);  // asks the keepers of the step for what is missing
  void ask(const std::string& endpoint);    // a generation has begun after a fence: asks its members
  void end() { values_ = {}; }
  void forget();  // the state is lost, and with it what others wanted

  // --- Called by the loop within the update, if it needs sums.
  void give_sums(const std::map<int, Blob>& sums);  // those of the buckets that it updates
  // Returns the sums of all buckets; null while some are missing.
  const std::map<int, Blob>* sums() const;

  // --- Called by the loop after the update.
  bool pending() const { return values_.step >= 0; }              // the update is not complete
  const std::vector<int>& kept() const { return values_.keeps; }  // the buckets that this member updates
  // Returns the buckets whose new values this member sends to others, by messages.
  std::vector<int> to_send() const;
  void send(int bucket, const std::vector<Blob>& slices);
  // The transfer through the group, if there is one: the buckets whose values this member sends to each other member,
  // and receives from it, by the index of that member.
  struct GroupTransfer {
    std::shared_ptr<GpuGroup> group;
    std::map<int, std::vector<int>> sends, receives;
  };
  const std::optional<GroupTransfer>& by_group() const { return values_.by_group; }
  bool transfers() const;  // false: a fence has come, and missing values come by messages
  void transferred();      // the group has carried all values
  void updated();          // this member's part of the update is made, and the values in to_send() are sent
  std::vector<messages::BucketValues> take_arrived();  // values to copy into the parameters
  bool arrived() const { return !values_.arrived.empty(); }
  bool complete() const { return values_.updated && values_.missing.empty(); }
  std::string missing() const;  // for people; "": nothing

  // --- Requests of other members.
  struct Wanted {
    PeerId peer = 0;
    int64_t step = 0;
    std::vector<int> buckets = {}, sums = {};
  };
  // Returns the requests that can be answered now, by give(): the parameters in these buckets are those after update
  // `step`, until the loop updates them again.
  std::vector<Wanted> take_wanted();
  void give(const Wanted& to, int bucket, std::vector<Blob> slices);

 private:
  struct Values {
    int64_t step = -1;                                // -1: none
    int64_t number = 0;                               // the generation in which the trailer came
    std::map<int, std::vector<PeerId>> keepers = {};  // of each missing bucket
    std::vector<int> keeps = {};
    std::set<int> owned = {};                         // the buckets whose values and sums others get from this member
    std::map<int, std::vector<PeerId>> to_send = {};  // by owned bucket: the peers that get its values by messages
    std::set<int> missing = {}, missing_sums = {};
    std::vector<PeerId> peers = {};  // the other members of the step's generation
    bool updated = false;
    std::vector<messages::BucketValues> arrived = {};
    std::optional<GroupTransfer> by_group = {};
  };
  void plan_transfer(std::shared_ptr<GpuGroup> group);
  bool counts(const Message& message) const;
  bool take(const Message& message);
  bool may_count(const Message& message) const;
  void answer_sums(Wanted& wanted);
  bool has(int bucket, int64_t step) const;

  const MemberPosition& position_;
  const GradientLayout& layout_;
  const CatchingUp& catching_up_;
  const OptimizerShards& shards_;
  MemberOutbox& outbox_;
  Values values_;
  int64_t sums_step_ = -1;  // the step of the newest sums, which others may lack longer than this member
  std::map<int, Blob> sums_;
  std::vector<Message> early_;
  std::vector<Wanted> wanted_;
};

}  // namespace elinvar
