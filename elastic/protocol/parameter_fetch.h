#pragma once
// Parameters (ZeRO-3) and moving averages of them (ZeRO) that this member does not keep. It fetches them from the
// members that provide their buckets while it computes rank gradients and scores; and others fetch them from it. Every
// request for a bucket gets one answer, from the state before the step, which no member changes until all have computed
// their rank gradients. A fence or another generation ends the requests of a step. `average` tells
// requests for averages from those for parameters.
//
// A member asks for single rows of a sparse table (nn/touched_rows.h), one request at a time. Each member that provides
// some of them answers once.
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/protocol/optimizer_shards.h"

namespace elinvar {

class ParameterFetch {
 public:
  ParameterFetch(const MemberPosition& position, const GradientLayout& layout, const OptimizerShards& shards,
                 MemberOutbox& outbox)
      : position_(position), layout_(layout), shards_(shards), outbox_(outbox) {}

  // --- Called by the loop.
  void begin();        // a step begins
  bool going() const;  // false: it is over for this member
  void ask(std::span<const int> buckets, bool average = false);
  // Returns and removes the answer to the oldest request for a bucket, once it is there.
  std::optional<messages::ParameterValues> take(int bucket, bool average = false);
  void forget(int bucket, bool average = false);  // the oldest request for the bucket is void
  std::string missing() const;                    // what the loop waits for, for people; "": nothing
  // Rows of a sparse table, by bucket. The answer to an earlier request is void.
  void ask_rows(int table, const std::map<int, std::vector<int64_t>>& rows, bool average = false);
  // Returns the values of the rows of each bucket, once all are there.
  std::optional<std::map<int, Blob>> take_rows();

  // --- Requests of other members.
  struct Wanted {
    PeerId peer = 0;
    std::vector<int> buckets = {};
    bool average = false;
  };
  // Returns those that can be answered now, by give(): the parameters are those of the state that they ask for.
  std::vector<Wanted> take_wanted();
  void give(const Wanted& wanted, int bucket, std::vector<Blob> slices);
  struct WantedRows {
    PeerId peer = 0;
    messages::WantRows rows = {};
  };
  std::vector<WantedRows> take_wanted_rows();  // .. by give()
  void give(const WantedRows& wanted, Blob values);

  // --- Called by the member.
  void receive(const Message& message, const messages::WantParameters& want);
  void receive(const Message& message, const messages::ParameterValues& values);
  void receive(const Message& message, const messages::WantRows& want);
  void receive(const Message& message, const messages::RowValues& values);
  void prune();  // drops requests that no longer count

 private:
  struct At {
    int64_t generation = 0, step = 0;
    bool operator==(const At&) const = default;
  };
  struct Request {
    At at;
    Wanted wanted;
  };
  struct RowRequest {
    At at;
    WantedRows wanted;
  };
  // This member's last request of rows.
  struct AskedRows {
    int64_t number = 0;
    int64_t row_bytes = 0;
    // For each member that must answer: the buckets and their numbers of rows, in order.
    std::map<PeerId, std::vector<std::pair<int, size_t>>> awaited = {};
    std::map<int, Blob> arrived = {};
    bool waits = false;
  };
  struct Asked {
    int bucket = -1;
    bool average = false;
    auto operator<=>(const Asked&) const = default;
  };
  bool counts(const At& at) const;
  bool names_rows(const messages::WantRows& want) const;
  bool answers() const;

  const MemberPosition& position_;
  const GradientLayout& layout_;
  const OptimizerShards& shards_;
  MemberOutbox& outbox_;
  std::optional<At> begun_;
  std::map<Asked, std::deque<messages::ParameterValues>> arrived_;
  std::map<Asked, int> forgotten_;  // answers to drop
  Asked awaited_;                   // the bucket that take() did not find
  std::vector<Request> wanted_;
  std::vector<RowRequest> wanted_rows_;
  AskedRows asked_;
};

}  // namespace elinvar
