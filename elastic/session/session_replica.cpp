// A session: computes virtual shards together with the other members of its stage (tensor parallelism).
#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>

#include "elastic/protocol/value_pieces.h"
#include "elastic/session/session_impl.h"
#include "tensor/base/check.h"
#include "tensor/ops/concat.h"
#include "tensor/reduction_tree.h"
#include "tensor/transfer.h"

namespace elinvar {

using Clock = std::chrono::steady_clock;

namespace {

constexpr int64_t kLeastSlice = 1 << 14;  // elements: fewer are not worth a second message

using Values = std::vector<Subtree>;

messages::ShardValues told(const Values& values) {
  std::vector<Download> sent;
  for (const Subtree& value : values) sent.emplace_back(value.values[0].to_contiguous());
  messages::ShardValues message;
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor& value = values[i].values[0];
    message.values.push_back(
        {.begin = values[i].begin, .end = values[i].end, .shape = value.shape(), .dtype = value.dtype()});
    append_pieces(message.elements, blob_of(sent[i].wait()));
  }
  return message;
}

std::map<int, messages::ShardValues> told(const std::map<int, Values>& each) {
  std::map<int, messages::ShardValues> messages;
  for (const auto& [member, values] : each) messages[member] = told(values);
  return messages;
}

Values heard(const messages::ShardValues& message, Device device) {
  Values values;
  size_t at = 0;
  for (const auto& [begin, end, shape, dtype] : message.values) {
    const auto bytes = static_cast<size_t>(shape.numel() * size_of(dtype));
    const size_t pieces = count_of_pieces(bytes);
    values.push_back({begin, end, {joined(std::span(message.elements).subspan(at, pieces), shape, dtype).to(device)}});
    at += pieces;
  }
  return values;
}

const Values& for_member(const Values& all, int) { return all; }
const Values& for_member(const std::map<int, Values>& each, int member) { return each.at(member); }

Values in_order(Values own, std::map<int, Values> others) {
  for (auto& [member, values] : others) std::ranges::move(values, std::back_inserter(own));
  std::sort(own.begin(), own.end(), [](const Subtree& a, const Subtree& b) { return a.begin < b.begin; });
  return own;
}

Tensor root_of(Values nodes, int count) {
  TreeReducer all(count);
  for (Subtree& node : nodes) all.add(std::move(node));
  return std::move(all.take_root().at(0));
}

}  // namespace

ReplicaShards::ReplicaShards(Session::Impl& session) : session_(session) {}

void ReplicaShards::begin(const ModelReplica& replica, int me) {
  const ReplicaPlace& place = replica.place();
  own_ = {place.shards.begin, place.shards.end};
  count_ = replica.of_shards();
  portion_ = elinvar::portion(count_, place);
  me_ = me;
  members_ = replica.stage();
  shards_.clear();
  for (const int other : members_)
    if (other != me) shards_[other] = replica.place_of(other).shards;
  group_ = several() ? session_.member.groups().agreed() : nullptr;
  waited_ = {};
}

ShardRange ReplicaShards::own(int count) const {
  check(count == count_, "[shards] {} virtual shards, but the members of a model replica share {}", count, count_);
  return own_;
}

template <class Own>
std::map<int, Values> ReplicaShards::exchanged(const Own& own, const Expected& expected, Device device) {
  const bool in_group = group_ && group_->device() == device;
  return in_group ? by_group(own, expected, device) : by_messages(own, expected, device);
}

template <class Own>
std::map<int, Values> ReplicaShards::by_messages(const Own& own, const Expected& expected, Device device) {
  Session::Impl& s = session_;
  auto messages = told(own);
  std::optional<std::map<int, messages::ShardValues>> others;
  const auto fits = [&](int member, const messages::ShardValue& value) {
    return std::ranges::find(expected.at(member), value) != expected.at(member).end();
  };
  {
    const Activity activity("exchange of shards");
    const Clock::time_point began = Clock::now();
    Lock lock(s.mutex);
    ReplicaExchange& exchange = s.member.replica_exchange();
    if (!exchange.going()) throw Session::StepOver();
    exchange.send(std::move(messages));
    s.flush();
    s.wait_within_work(lock, [&] { return s.member.outcome() || !exchange.going() || (others = exchange.take(fits)); });
    if (!others) throw Session::StepOver();
    waited_ += Clock::now() - began;
  }
  std::map<int, Values> values;
  for (const auto& [member, message] : *others) values[member] = heard(message, device);
  return values;
}

// Waits for the device before and after the transfer: the first wait is for this member's work and the second for other
// members, and no work of the device follows a transfer that another member may never make.
template <class Own>
std::map<int, Values> ReplicaShards::by_group(const Own& own, const Expected& expected, Device device) {
  Session::Impl& s = session_;
  std::vector<GroupTensor> sends, receives;
  std::map<int, Values> others;
  for (const auto& [member, nodes] : expected) {
    for (const Subtree& value : for_member(own, member)) sends.push_back({value.values[0].to_contiguous(), member});
    for (const auto& [begin, end, shape, dtype] : nodes) {
      others[member].push_back({begin, end, {Tensor::empty(shape, dtype, device)}});
      receives.push_back({others[member].back().values[0], member});
    }
  }
  on_gpu(device, [](auto& stream) { stream.synchronize(); });
  const Activity activity("exchange of shards");
  const Clock::time_point began = Clock::now();
  Lock lock(s.mutex);
  const auto going = [&] { return !s.member.outcome() && s.member.replica_exchange().going(); };
  if (!going()) throw Session::StepOver();
  group_->transfer(sends, receives);
  s.die(Fault::Point::within, s.view.number);
  if (!s.wait_for_transfer(lock, *group_, going)) throw Session::StepOver();
  waited_ += Clock::now() - began;
  return others;
}

// The nodes do not depend on values, so they are those of absent leaves.
ReplicaShards::Expected ReplicaShards::nodes_like(const Shape& shape, DType dtype) const {
  Expected expected;
  for (const auto& [member, shards] : shards_) {
    TreeReducer nodes(count_);
    for (int shard = shards.begin; shard < shards.end; ++shard) nodes.add(shard, {});
    for (const Subtree& node : nodes.subtrees()) expected[member].push_back({node.begin, node.end, shape, dtype});
  }
  return expected;
}

Tensor ReplicaShards::sum(std::vector<Tensor> values, int count) {
  TreeReducer reducer(count);
  int shard = own(count).begin;
  for (Tensor& value : values) {
    std::vector<Tensor> leaf(1);
    leaf[0] = std::move(value);
    reducer.add(shard++, std::move(leaf));
  }
  Values own = reducer.take_subtrees();
  const Tensor& like = own[0].values[0];
  const auto members = static_cast<int64_t>(members_.size());
  if (members > 2 && like.numel() >= members * kLeastSlice) return sliced_sum(std::move(own));
  std::map<int, Values> others = exchanged(own, nodes_like(like.shape(), like.dtype()), like.device());
  return root_of(in_order(std::move(own), std::move(others)), count);
}

// Each member adds up a slice of the elements and sends it to the others, so that t members send about 2 (t - 1) / t
// times the elements of the sum and not t - 1 times those of their nodes.
Tensor ReplicaShards::sliced_sum(Values own) {
  const Tensor& like = own[0].values[0];
  const Shape shape = like.shape();
  const Device device = like.device();
  const DType dtype = like.dtype();
  const auto t = static_cast<int64_t>(members_.size());
  const int64_t numel = shape.numel();
  const auto slice_of = [&](int64_t position) { return Slice{0, numel * position / t, numel * (position + 1) / t}; };
  std::map<int, Values> slices;
  Expected parts;
  for (int64_t position = 0; position < t; ++position) {
    const int member = members_[static_cast<size_t>(position)];
    const Slice slice = slice_of(position);
    for (const Subtree& node : own)
      slices[member].push_back({node.begin, node.end, {view_of(node.values[0].to_contiguous(), slice)}});
    if (member != me_) parts[member] = {{shards_.at(member).begin, shards_.at(member).end, {slice.numel()}, dtype}};
  }
  own.clear();
  Values mine = std::move(slices.extract(me_).mapped());
  std::map<int, Values> of_others = exchanged(slices, nodes_like(mine[0].values[0].shape(), dtype), device);
  slices.clear();
  const Tensor part = root_of(in_order(std::move(mine), std::move(of_others)), count_);
  const Values own_part = {{own_.begin, own_.end, {part}}};
  std::vector<Tensor> all;
  for (const Subtree& each : in_order(own_part, exchanged(own_part, parts, device))) all.push_back(each.values[0]);
  return concat(all, 0).reshape(shape);
}

std::vector<Tensor> ReplicaShards::gather(std::vector<Tensor> values, const std::vector<Shape>& shapes) {
  int shard = own(static_cast<int>(shapes.size())).begin;
  Values own;
  for (Tensor& value : values) {
    own.push_back({shard, shard + 1, {std::move(value)}});
    ++shard;
  }
  const DType dtype = own.at(0).values[0].dtype();
  Expected expected;
  for (const auto& [member, shards] : shards_)
    for (int s = shards.begin; s < shards.end; ++s)
      expected[member].push_back({s, s + 1, shapes[static_cast<size_t>(s)], dtype});
  std::map<int, Values> others = exchanged(own, expected, own[0].values[0].device());
  std::vector<Tensor> all;
  for (Subtree& value : in_order(std::move(own), std::move(others))) all.push_back(std::move(value.values[0]));
  return all;
}

}  // namespace elinvar
