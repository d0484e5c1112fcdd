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

messages::ShardValues told(const std::vector<Subtree>& values) {
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

std::vector<Subtree> heard(const messages::ShardValues& message, Device device) {
  std::vector<Subtree> values;
  size_t at = 0;
  for (const auto& [begin, end, shape, dtype] : message.values) {
    const auto bytes = static_cast<size_t>(shape.numel() * size_of(dtype));
    const size_t pieces = count_of_pieces(bytes);
    values.push_back({begin, end, {joined(std::span(message.elements).subspan(at, pieces), shape, dtype).to(device)}});
    at += pieces;
  }
  return values;
}

std::vector<Subtree> in_order(std::vector<Subtree> own, const std::map<int, messages::ShardValues>& others,
                              Device device) {
  for (const auto& [member, values] : others) std::ranges::move(heard(values, device), std::back_inserter(own));
  std::sort(own.begin(), own.end(), [](const Subtree& a, const Subtree& b) { return a.begin < b.begin; });
  return own;
}

ReplicaExchange::Fits are_like(const Shape& shape, DType dtype) {
  return [shape, dtype](int, const messages::ShardValue& v) { return v.shape == shape && v.dtype == dtype; };
}

Tensor root_of(std::vector<Subtree> nodes, int count) {
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
  waited_ = {};
}

ShardRange ReplicaShards::own(int count) const {
  check(count == count_, "[shards] {} virtual shards, but the members of a model replica share {}", count, count_);
  return own_;
}

template <class Values>
std::map<int, messages::ShardValues> ReplicaShards::exchanged(Values&& own, const ReplicaExchange::Fits& fits) {
  Session::Impl& s = session_;
  const Activity activity("exchange of shards");
  const Clock::time_point began = Clock::now();
  Lock lock(s.mutex);
  ReplicaExchange& exchange = s.member.replica_exchange();
  if (!exchange.going()) throw Session::StepOver();
  exchange.send(std::forward<Values>(own));
  s.flush();
  std::optional<std::map<int, messages::ShardValues>> others;
  s.wait_within_work(lock, [&] { return s.member.outcome() || !exchange.going() || (others = exchange.take(fits)); });
  if (!others) throw Session::StepOver();
  waited_ += Clock::now() - began;
  return *std::move(others);
}

Tensor ReplicaShards::sum(std::vector<Tensor> values, int count) {
  TreeReducer reducer(count);
  int shard = own(count).begin;
  for (Tensor& value : values) {
    std::vector<Tensor> leaf(1);
    leaf[0] = std::move(value);
    reducer.add(shard++, std::move(leaf));
  }
  std::vector<Subtree> own = reducer.take_subtrees();
  const auto members = static_cast<int64_t>(members_.size());
  if (members > 2 && own[0].values[0].numel() >= members * kLeastSlice) return sliced_sum(std::move(own), count);
  const ReplicaExchange::Fits fits = are_like(own[0].values[0].shape(), own[0].values[0].dtype());
  return root_of(exchanged(std::move(own), fits), count);
}

// Each member adds up a slice of the elements and sends it to the others, so that t members send about 2 (t - 1) / t
// times the elements of the sum and not t - 1 times those of their nodes.
Tensor ReplicaShards::sliced_sum(std::vector<Subtree> own, int count) {
  const Tensor& like = own[0].values[0];
  const Shape shape = like.shape();
  const Device device = like.device();
  const DType dtype = like.dtype();
  const auto t = static_cast<int64_t>(members_.size());
  const int64_t numel = shape.numel();
  const auto slice_of = [&](int64_t position) { return Slice{0, numel * position / t, numel * (position + 1) / t}; };
  std::map<int, messages::ShardValues> to_others;
  std::vector<Subtree> mine;
  for (int64_t position = 0; position < t; ++position) {
    std::vector<Subtree> parts;
    for (const Subtree& node : own)
      parts.push_back({node.begin, node.end, {view_of(node.values[0].to_contiguous(), slice_of(position))}});
    const int member = members_[static_cast<size_t>(position)];
    if (member == me_) mine = std::move(parts);
    else to_others[member] = told(parts);
  }
  own.clear();
  const Shape my_shape = mine[0].values[0].shape();
  const std::map<int, messages::ShardValues> of_others = exchanged(to_others, are_like(my_shape, dtype));
  const Tensor part = root_of(in_order(std::move(mine), of_others, device), count);
  const auto is_its_slice = [&](int member, const messages::ShardValue& value) {
    const auto position = std::ranges::find(members_, member) - members_.begin();
    return value.shape == Shape{slice_of(position).numel()} && value.dtype == dtype;
  };
  const std::map<int, messages::ShardValues> parts = exchanged(told({{own_.begin, own_.end, {part}}}), is_its_slice);
  std::vector<Tensor> all;
  for (int64_t position = 0; position < t; ++position) {
    const int member = members_[static_cast<size_t>(position)];
    all.push_back(member == me_ ? part : heard(parts.at(member), device).at(0).values[0]);
  }
  return concat(all, 0).reshape(shape);
}

std::vector<Tensor> ReplicaShards::gather(std::vector<Tensor> values, const std::vector<Shape>& shapes) {
  int shard = own(static_cast<int>(shapes.size())).begin;
  std::vector<Subtree> own;
  for (Tensor& value : values) {
    own.push_back({shard, shard + 1, {std::move(value)}});
    ++shard;
  }
  const auto fits = [&, dtype = own.at(0).values[0].dtype()](int, const messages::ShardValue& value) {
    return value.end == value.begin + 1 && value.shape == shapes[static_cast<size_t>(value.begin)] &&
           value.dtype == dtype;
  };
  std::vector<Tensor> all;
  for (Subtree& value : exchanged(std::move(own), fits)) all.push_back(std::move(value.values[0]));
  return all;
}

// Returns the values of all members in order.
std::vector<Subtree> ReplicaShards::exchanged(std::vector<Subtree> own, const ReplicaExchange::Fits& fits) {
  const Device device = own.at(0).values[0].device();
  const std::map<int, messages::ShardValues> others = exchanged(told(own), fits);
  return in_order(std::move(own), others, device);
}

}  // namespace elinvar
