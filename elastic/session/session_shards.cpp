// A session: the optimizer's state, sharded over the members (ZeRO, elastic/ARRANGEMENT.md).
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include "elastic/session/session_impl.h"
#include "tensor/base/activity.h"
#include "tensor/base/check.h"
#include "tensor/ops/copy.h"

namespace elinvar {
namespace {

Tensor host_copy(const Tensor& view) { return view.device() == Device{} ? view.clone() : view.to(Device{}); }

int64_t chunks_of(int64_t elements) { return (elements + kChunkElements - 1) / kChunkElements; }

}  // namespace

std::vector<StateSlice> Session::Impl::state_of(std::span<const int> buckets, int zero) const {
  std::vector<StateSlice> slices;
  for (const int bucket : buckets)
    for (const Slice& slice : member.layout().shard_buckets().slices(bucket))
      for (StateSlice& tensor : state.shards->state(slice, zero)) slices.push_back(std::move(tensor));
  return slices;
}

// Copies, because the parameters change with the next update while messages are still being sent.
std::vector<Blob> Session::Impl::values_of(int bucket) const {
  std::vector<Blob> values;
  for (const Slice& slice : member.layout().shard_buckets().slices(bucket))
    values.push_back(blob_of(host_copy(state.shards->updated(slice))));
  return values;
}

std::vector<Blob> Session::Impl::averages_of(int bucket) const {
  std::vector<Blob> averages;
  for (const Slice& slice : member.layout().shard_buckets().slices(bucket))
    averages.push_back(blob_of(host_copy(state.shards->average(slice))));
  return averages;
}

// `slices` are those of state_of() for the part's buckets, in order.
void Session::Impl::send_shards(const StatePart& part, const std::vector<StateSlice>& slices) {
  size_t at = 0;
  for (const int bucket : part.buckets) {
    messages::BucketState told{.bucket = bucket};
    for (const Slice& slice : member.layout().shard_buckets().slices(bucket))
      for (size_t k = state.shards->ranges(slice, part.zero).size(); k > 0; --k, ++at) {
        told.tensors.push_back(blob_of(slices[at].values));
        told.digests.push_back(digest(slices[at].values));
      }
    const Lock lock(mutex);
    transmit(part.to, {.generation = part.generation, .step = part.step, .payload = std::move(told)});
  }
}

std::vector<messages::StateChunks> Session::Impl::state_chunks(std::span<const int> buckets, int zero) const {
  std::vector<messages::StateChunks> chunks;
  for (const int bucket : buckets) {
    std::string bytes;
    for (const SliceDigests& slice : slice_digests(state_of({&bucket, 1}, zero)))
      bytes.append(reinterpret_cast<const char*>(slice.chunks.data()), slice.chunks.size() * sizeof(Digest));
    chunks.push_back({.bucket = bucket, .chunks = blob_of(std::move(bytes))});
  }
  return chunks;
}

// Keeps what this member is to keep from now on; takes what came from other members.
void Session::Impl::change_shards(Lock& lock) {
  const std::optional<OptimizerShards::Change> change = member.shards().take_change();
  if (!change) return;
  lock.unlock();
  const Buckets& buckets = member.layout().shard_buckets();
  std::vector<Slice> slices;
  for (const int bucket : change->kept)
    slices.insert(slices.end(), buckets.slices(bucket).begin(), buckets.slices(bucket).end());
  state.shards->keep(change->zero, std::move(slices));
  for (const auto& [bucket, gained] : change->gained) {
    std::vector<StateSlice> places = places_of(bucket, change->zero_before, change->zero);
    if (places.size() != gained.tensors.size() || places.size() != gained.digests.size())
      elinvar::fail("the optimizer's state of bucket {} came in {} tensors instead of {}", bucket,
                    gained.tensors.size(), places.size());
    for (size_t i = 0; i < places.size(); ++i) {
      if (gained.tensors[i].bytes != static_cast<size_t>(places[i].values.bytes()))
        elinvar::fail("{} came with another size", slice_name(places[i].tensor, places[i].begin, places[i].end));
      const Tensor values = tensor_of(gained.tensors[i]);
      if (digest(values) != gained.digests[i])
        elinvar::fail("{} came damaged", slice_name(places[i].tensor, places[i].begin, places[i].end));
      copy(values.to(places[i].values.device()), places[i].values);
    }
  }
  lock.lock();
  options.about.zero = change->zero;
}

// Returns where the tensors of a bucket go that was held with one stage of ZeRO and is kept with another.
std::vector<StateSlice> Session::Impl::places_of(int bucket, int zero_before, int zero) const {
  std::vector<StateSlice> places;
  for (const Slice& slice : member.layout().shard_buckets().slices(bucket)) {
    std::vector<StateSlice> kept = state.shards->state(slice, zero);
    for (const SliceRange& range : state.shards->ranges(slice, zero_before)) {
      const auto found = std::ranges::find(kept, range.tensor, &StateSlice::tensor);
      if (found != kept.end()) places.push_back(*found);
      else
        places.push_back({.tensor = range.tensor,
                          .whole = range.whole,
                          .begin = range.begin,
                          .end = range.end,
                          .values = state.shards->parameter(slice)});
    }
  }
  return places;
}

// Makes the digests of the gradient, and of the state before the step if it was digested, from those of their chunks.
void Session::Impl::compose_digests(Lock& lock) {
  const int64_t made = std::min(view.number, member.position().known_steps().value_or(view.number));
  lock.unlock();
  if (reduced.shards) {
    const std::vector<Digest>& chunks = reduced.shards->chunks;
    size_t at = 0;
    std::vector<Digest> tensors;
    const std::vector<Shape>& shapes = member.layout().buckets()->shapes();
    for (const Shape& shape : std::span(shapes).first(static_cast<size_t>(member.layout().gradients()))) {
      const auto count = static_cast<size_t>(chunks_of(shape.numel()));
      if (at + count > chunks.size()) elinvar::fail("the trailer lacks digests of the gradient");
      tensors.push_back(digest_of_chunks(DType::f32, shape, std::span(chunks).subspan(at, count)));
      at += count;
    }
    for (const TensorDigest& tensor : digest_tree(reduced.batch_statistics)) tensors.push_back(tensor.digest);
    gradient = digest_in_order(tensors);
  }
  if (reduced.state) {
    if (held_with > 0 && digested != view.number) digests = digests_of(whole_state(made, made_before, held_with));
    std::vector<SliceDigests> slices;
    for (const BucketChunks& bucket : reduced.state_chunks) {
      size_t at = 0;
      for (const Slice& slice : member.layout().shard_buckets().slices(bucket.bucket))
        for (const SliceRange& range : state.shards->ranges(slice, held_with)) {
          const auto count = static_cast<size_t>(chunks_of(range.end - range.begin));
          if (at + count > bucket.chunks.size()) elinvar::fail("the trailer lacks digests of {}", range.tensor);
          slices.push_back(
              {.tensor = range.tensor,
               .whole = range.whole,
               .begin = range.begin,
               .chunks = std::vector<Digest>(bucket.chunks.begin() + static_cast<std::ptrdiff_t>(at),
                                             bucket.chunks.begin() + static_cast<std::ptrdiff_t>(at + count))});
          at += count;
        }
    }
    if (held_with > 0) {
      StateSum sum = state_sum(digests, slices);
      reduced.state = sum.digest;
      reduced.state_digests = std::move(sum.parts);
    }
  }
  lock.lock();
}

void Session::Impl::give_wanted() {
  ValueExchange& values = member.values();
  for (const ValueExchange::Wanted& wanted : values.take_wanted())
    for (const int bucket : wanted.buckets) values.give(wanted, bucket, values_of(bucket));
}

void Session::Impl::give_parameters() {
  ParameterFetch& fetch = member.parameter_fetch();
  for (const ParameterFetch::Wanted& wanted : fetch.take_wanted()) {
    if (!can_give(wanted.average)) continue;
    for (const int bucket : wanted.buckets)
      fetch.give(wanted, bucket, wanted.average ? averages_of(bucket) : values_of(bucket));
  }
  for (const ParameterFetch::WantedRows& wanted : fetch.take_wanted_rows())
    if (can_give(wanted.rows.average)) fetch.give(wanted, rows_of(wanted.rows));
}

// Returns whether this job has what is asked for. Correct members do not ask for averages in a job without them.
bool Session::Impl::can_give(bool average) const { return !average || state.shards->averages(); }

Blob Session::Impl::rows_of(const messages::WantRows& wanted) const {
  const Buckets& buckets = member.layout().shard_buckets();
  const Shape& shape = buckets.shapes()[static_cast<size_t>(wanted.table)];
  const int64_t channels = shape.numel() / shape[0];
  std::vector<int64_t> rows(wanted.rows.bytes / sizeof(int64_t));
  std::memcpy(rows.data(), wanted.rows.data, rows.size() * sizeof(int64_t));
  std::string bytes;
  const auto [first, last] = buckets.of(wanted.table);
  auto at = rows.begin();
  for (int b = first; b < last && at != rows.end(); ++b) {
    const Slice& slice = buckets.slices(b)[0];
    const auto end = std::find_if(at, rows.end(), [&](int64_t row) { return row >= slice.end / channels; });
    if (end == at) continue;
    const Tensor values = state.shards->rows(slice, std::span(at, end), wanted.average).to(Device{});
    bytes.append(reinterpret_cast<const char*>(values.data<float>()), static_cast<size_t>(values.bytes()));
    at = end;
  }
  return blob_of(std::move(bytes));
}

std::map<int, Blob> Session::fetch_rows(int table, const std::map<int, std::vector<int64_t>>& rows, bool average) {
  Impl& s = *impl_;
  const Activity activity("waiting for parameters");
  Lock lock(s.mutex);
  ParameterFetch& fetch = s.member.parameter_fetch();
  if (!fetch.going()) throw StepOver();
  fetch.ask_rows(table, rows, average);
  s.flush();
  std::optional<std::map<int, Blob>> values;
  s.wait_within_work(lock, [&] { return s.member.outcome() || !fetch.going() || (values = fetch.take_rows()); });
  if (!values) throw StepOver();
  return std::move(*values);
}

const Buckets& Session::parameter_buckets() const { return impl_->member.layout().shard_buckets(); }

void Session::ask_parameters(std::span<const int> buckets, bool average) {
  Impl& s = *impl_;
  const Lock lock(s.mutex);
  if (!s.member.parameter_fetch().going()) throw StepOver();
  s.member.parameter_fetch().ask(buckets, average);
  s.flush();
}

std::vector<Blob> Session::take_parameters(int bucket, bool average) {
  Impl& s = *impl_;
  const Activity activity("waiting for parameters");
  Lock lock(s.mutex);
  ParameterFetch& fetch = s.member.parameter_fetch();
  std::optional<messages::ParameterValues> values;
  s.wait_within_work(lock,
                     [&] { return s.member.outcome() || !fetch.going() || (values = fetch.take(bucket, average)); });
  if (!values) throw StepOver();
  return std::move(values->slices);
}

void Session::forget_parameters(std::span<const int> buckets, bool average) {
  const Lock lock(impl_->mutex);
  for (const int bucket : buckets) impl_->member.parameter_fetch().forget(bucket, average);
}

std::vector<double> Session::gather_sums(const std::vector<double>& mine, int each) {
  Impl& s = *impl_;
  const Activity activity("exchange of sums");
  Lock lock(s.mutex);
  ValueExchange& values = s.member.values();
  const Buckets& buckets = s.member.layout().shard_buckets();
  const SegmentLayout layout(buckets.shapes());
  std::vector<double> all(static_cast<size_t>(layout.count() * each));
  if (!values.pending()) throw StepOver();
  if (values.kept().empty()) return all;  // this worker updates nothing
  std::map<int, Blob> sums;
  const auto* at = reinterpret_cast<const char*>(mine.data());
  const auto bytes_of = [&](int bucket) {
    int64_t segments = 0;
    for (const Slice& slice : buckets.slices(bucket)) segments += SegmentLayout::count(slice);
    return static_cast<size_t>(segments * each) * sizeof(double);
  };
  for (const int bucket : values.kept()) {
    sums[bucket] = blob_of(std::string(at, bytes_of(bucket)));
    at += bytes_of(bucket);
  }
  values.give_sums(sums);
  s.flush();
  const auto over = [&] { return s.member.outcome() || !values.pending(); };
  s.wait_within_work(lock, [&] { return over() || values.sums() != nullptr; });
  if (over()) throw StepOver();
  for (const auto& [bucket, blob] : *values.sums()) {
    if (blob.bytes != bytes_of(bucket)) elinvar::fail("the sums of bucket {} have another size", bucket);
    std::vector<double> part(blob.bytes / sizeof(double));
    std::memcpy(part.data(), blob.data, blob.bytes);
    layout.place(buckets.slices(bucket), part, all);
  }
  return all;
}

// Sends and receives the values through the group of GPUs. A fence ends this; messages then bring the missing ones. The
// buffers of a transfer are not the parameters, because a device may still write them after the transfer is given up.
// They hold one bucket of each other member. All members make these transfers in the same order.
void Session::Impl::transfer_values(Lock& lock) {
  ValueExchange& values = member.values();
  if (!values.transfers()) return;
  const ValueExchange::GroupTransfer plan = *values.by_group();
  const Buckets& buckets = member.layout().shard_buckets();
  const Tensor nothing = Tensor::empty({0}, DType::f32, plan.group->device());
  size_t rounds = 1;
  for (const auto& [other, all] : plan.sends) rounds = std::max({rounds, all.size(), plan.receives.at(other).size()});
  for (size_t round = 0; round < rounds; ++round) {
    lock.unlock();
    std::vector<GroupTensor> sends, receives;
    std::vector<std::pair<Tensor, Slice>> places;  // received tensors, and the slices that they belong to
    for (const auto& [other, given] : plan.sends) {
      const std::vector<int>& taken = plan.receives.at(other);
      if (round > 0 && round >= std::max(given.size(), taken.size())) continue;
      if (round < given.size())
        for (const Slice& slice : buckets.slices(given[round])) sends.push_back({state.shards->updated(slice), other});
      else sends.push_back({nothing, other});
      if (round >= taken.size()) receives.push_back({nothing, other});
      else
        for (const Slice& slice : buckets.slices(taken[round])) {
          const Tensor like = state.shards->updated(slice);
          places.emplace_back(Tensor::empty(like.shape(), like.dtype(), like.device()), slice);
          receives.push_back({places.back().first, other});
        }
    }
    on_gpu(plan.group->device(), [](auto& stream) { stream.synchronize(); });
    lock.lock();
    if (!values.transfers()) return;
    plan.group->transfer(sends, receives);
    if (round == 0) die(Fault::Point::value, view.number);
    if (!wait_for_transfer(lock, *plan.group, [&] { return !member.outcome() && values.transfers(); })) return;
    lock.unlock();
    for (const auto& [received, slice] : places) state.shards->put_updated(slice, received);
    lock.lock();
  }
  values.transferred();
}

bool Session::exchange_values() {
  Impl& s = *impl_;
  if (s.view.last) return true;
  const Activity activity("exchange of parameters");
  Lock lock(s.mutex);
  s.die(Fault::Point::update, s.view.number);
  if (!s.sharded) return true;
  ValueExchange& values = s.member.values();
  const Buckets& buckets = s.member.layout().shard_buckets();
  const std::vector<int> to_send = values.to_send();
  for (const int bucket : to_send) {
    lock.unlock();
    const std::vector<Blob> slices = s.values_of(bucket);
    lock.lock();
    if (!values.pending()) return false;
    values.send(bucket, slices);
    s.flush();
  }
  values.updated();
  s.flush();
  s.transfer_values(lock);
  const auto over = [&] { return s.member.outcome() || !values.pending(); };
  while (true) {
    s.wait_within_work(lock, [&] { return over() || values.arrived() || values.complete(); });
    if (over()) return false;
    const std::vector<messages::BucketValues> arrived = values.take_arrived();
    if (arrived.empty()) break;
    lock.unlock();
    for (const messages::BucketValues& bucket : arrived) {
      const std::span<const Slice> slices = buckets.slices(bucket.bucket);
      for (size_t i = 0; i < slices.size(); ++i) s.state.shards->put_updated(slices[i], tensor_of(bucket.slices[i]));
    }
    lock.lock();
  }
  StateTransfers& transfers = s.member.transfers();
  for (int bucket = 0; transfers.wants_values() && bucket < buckets.count(); ++bucket)
    transfers.give_values(bucket, s.values_of(bucket));
  s.flush();
  return true;
}

}  // namespace elinvar
