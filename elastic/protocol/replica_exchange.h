#pragma once
// Tensor parallelism: the messages that the members of a stage of a model replica send each other while they compute
// rank gradients together. All of them send equally many of each, in the same order: the values of their virtual shards
// at each place where the network adds up or joins those of all shards. A fence or another generation ends the rank
// gradients, which are then computed again.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "elastic/protocol/member_outbox.h"
#include "elastic/protocol/model_replica.h"

namespace elinvar {

class ReplicaExchange {
 public:
  ReplicaExchange(const MemberPosition& position, const ModelReplica& replica, MemberOutbox& outbox)
      : position_(position), replica_(replica), outbox_(outbox) {}

  // --- Called by the loop, in the same order by all members of the stage.
  void begin(int vrank);  // a rank gradient begins, or goes on with another pass
  bool going() const;     // false: it is over, and was not finished
  // Sends the next values, the same to all or those for each member by its index. Sets their `vrank` and `number`.
  void send(messages::ShardValues values);
  void send(std::map<int, messages::ShardValues> values);
  // Returns whether a value is of the shape and type that is expected from the member with this index.
  using Fits = std::function<bool(int member, const messages::ShardValue& value)>;
  // Returns the values of the other members, by their indexes, once all are there, and takes them. Reports a member
  // whose values do not fit. Requires send().
  std::optional<std::map<int, messages::ShardValues>> take(const Fits& fits);
  void end();                   // it is over, or another one goes on
  std::string missing() const;  // what the loop waits for, for people; "": nothing

  // --- Called by the member.
  void receive(const Message& message, const messages::ShardValues& values);
  void prune();  // drops values that no longer count

 private:
  struct Place {
    int64_t generation = 0, step = 0;
    int vrank = 0;
    int64_t number = 0;
    auto operator<=>(const Place&) const = default;
  };

  template <class PayloadOf>
  void send(const PayloadOf& payload_of);

  const MemberPosition& position_;
  const ModelReplica& replica_;
  MemberOutbox& outbox_;
  std::optional<Place> current_;  // the next values
  bool sent_ = false;
  std::pair<int64_t, int64_t> at_ = {-1, -1};  // the generation and the step of ..
  std::map<int, int64_t> numbers_;             // .. the numbers of values exchanged so far, by virtual rank
  std::map<Place, std::map<PeerId, messages::ShardValues>> arrived_;
};

}  // namespace elinvar
