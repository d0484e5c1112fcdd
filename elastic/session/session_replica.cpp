// A session: computes a rank gradient together with the other members of its model replica (tensor parallelism).
#include <algorithm>
#include <cstring>
#include <iterator>

#include "elastic/session/session_impl.h"
#include "tensor/base/check.h"
#include "tensor/reduction_tree.h"
#include "tensor/transfer.h"

namespace elinvar {

using Clock = std::chrono::steady_clock;

namespace {

// A wait within timed work, which must not count as work.
class Pause {
 public:
  explicit Pause(WorkClock& work) : work_(work), began_(Clock::now()) { work_.begins("", began_); }
  ~Pause() { work_.ends(Clock::now()); }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  WorkClock& work_;
  Clock::time_point began_;
};

messages::ShardValues told(const std::vector<Subtree>& values) {
  std::vector<Download> sent;
  for (const Subtree& value : values) sent.emplace_back(value.values[0].to_contiguous());
  messages::ShardValues message;
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor& value = values[i].values[0];
    message.values.push_back(
        {.begin = values[i].begin, .end = values[i].end, .shape = value.shape(), .dtype = value.dtype()});
    message.elements.push_back(blob_of(sent[i].wait()));
  }
  return message;
}

std::vector<Subtree> heard(const messages::ShardValues& message, Device device) {
  std::vector<Subtree> values;
  for (size_t i = 0; i < message.values.size(); ++i) {
    const auto& [begin, end, shape, dtype] = message.values[i];
    const Blob& elements = message.elements[i];
    values.push_back({begin, end, {Tensor::over(elements.owner, elements.data, shape, dtype).to(device)}});
  }
  return values;
}

}  // namespace

ReplicaShards::ReplicaShards(Session::Impl& session) : session_(session) {}

void ReplicaShards::begin(const ModelReplica& replica) {
  own_ = {replica.shards().begin, replica.shards().end};
  count_ = replica.of_shards();
  waited_ = {};
}

ShardRange ReplicaShards::own(int count) const {
  check(count == count_, "[shards] {} virtual shards, but the members of a model replica share {}", count, count_);
  return own_;
}

Tensor ReplicaShards::sum(std::vector<Tensor> values, int count) {
  TreeReducer own(count);
  int shard = this->own(count).begin;
  for (Tensor& value : values) {
    std::vector<Tensor> leaf(1);
    leaf[0] = std::move(value);
    own.add(shard++, std::move(leaf));
  }
  TreeReducer all(count);
  for (Subtree& node : exchanged(own.take_subtrees())) all.add(std::move(node));
  return std::move(all.take_root().at(0));
}

std::vector<Tensor> ReplicaShards::gather(std::vector<Tensor> values, int count) {
  std::vector<Subtree> own;
  for (Tensor& value : values) {
    const int shard = this->own(count).begin + static_cast<int>(own.size());
    own.push_back({shard, shard + 1, {std::move(value)}});
  }
  std::vector<Tensor> all;
  for (Subtree& value : exchanged(std::move(own))) all.push_back(std::move(value.values[0]));
  return all;
}

std::vector<Digest> ReplicaShards::complete(std::vector<Digest>& digests, const GradientLayout& layout,
                                            const Digest& shared) {
  digests.resize(static_cast<size_t>(layout.gradients()));
  const auto each_of = [&](const Interval& shards, auto&& f) {
    for (size_t i = 0; i < digests.size(); ++i) {
      const int shard = layout.virtual_shard(static_cast<int>(i));
      if (shards.begin <= shard && shard < shards.end) f(digests[i]);
    }
  };
  const Interval shards{own_.begin, own_.end};
  std::string bytes;
  const auto write = [&](const Digest& d) { bytes.append(reinterpret_cast<const char*>(&d), sizeof(d)); };
  each_of(shards, write);
  write(shared);
  messages::ShardValues told;
  told.values.push_back({shards.begin, shards.end, {static_cast<int64_t>(bytes.size())}, DType::u8});
  told.elements.push_back(blob_of(std::move(bytes)));
  std::map<int, Digest> of_members = {{shards.begin, shared}};
  for (const auto& [member, others] : exchanged(told)) {
    check(others.values.size() == 1, "[shards] digests of one range expected, got {}", others.values.size());
    const Blob& blob = others.elements[0];
    size_t at = 0;
    const auto read = [&](Digest& d) {
      check(at + sizeof(d) <= blob.bytes, "[shards] digests are missing");
      std::memcpy(&d, blob.data + at, sizeof(d));
      at += sizeof(d);
    };
    each_of({others.values[0].begin, others.values[0].end}, read);
    read(of_members[others.values[0].begin]);
  }
  std::vector<Digest> all;
  for (const auto& [shard, digest] : of_members) all.push_back(digest);
  return all;
}

double ReplicaShards::alone(std::chrono::duration<double> seconds) const {
  return (seconds - waited_).count() * count_ / own_.size();
}

// Returns the values of all members in order.
std::vector<Subtree> ReplicaShards::exchanged(std::vector<Subtree> own) {
  const Device device = own.at(0).values[0].device();
  const std::map<int, messages::ShardValues> others = exchanged(told(own));
  std::vector<Subtree> all = std::move(own);
  for (const auto& [member, values] : others) std::ranges::move(heard(values, device), std::back_inserter(all));
  std::sort(all.begin(), all.end(), [](const Subtree& a, const Subtree& b) { return a.begin < b.begin; });
  return all;
}

std::map<int, messages::ShardValues> ReplicaShards::exchanged(const messages::ShardValues& own) {
  Session::Impl& s = session_;
  const Activity activity("exchange of shards");
  const Clock::time_point began = Clock::now();
  Lock lock(s.mutex);
  ReplicaExchange& exchange = s.member.replica_exchange();
  const Pause pause(s.work);
  if (!exchange.going()) throw Session::StepOver();
  exchange.send(own);
  s.flush();
  while (true) {
    s.rethrow();
    if (s.member.outcome() || !exchange.going()) throw Session::StepOver();
    if (auto others = exchange.take()) {
      waited_ += Clock::now() - began;
      return *std::move(others);
    }
    s.wait(lock);
  }
}

}  // namespace elinvar
