#include "tools/training/parameter_shards.h"

#include <algorithm>
#include <set>

#include "tensor/ops/copy.h"

namespace elinvar {

Tensor ParameterShards::tensor(size_t parameter) const {
  const Network& network = average_ ? *setup_.average : *setup_.network;
  return network.parameters.list[parameter].var.value();
}

void ParameterShards::request(std::span<const size_t> parameters) {
  std::set<int> buckets;
  if (session_ != nullptr) {
    const Buckets& cut = session_->parameter_buckets();
    for (const size_t p : parameters) {
      const auto [first, last] = cut.of(static_cast<int>(p));
      for (int b = first; b < last; ++b)
        for (const Slice& slice : cut.slices(b))
          if (slice.tensor == static_cast<int>(p) && !state_.has(slice, average_)) buckets.insert(b);
    }
  }
  const auto request = std::make_shared<Request>(Request{.buckets = {buckets.begin(), buckets.end()}});
  if (!buckets.empty()) session_->ask_parameters(request->buckets, average_);
  for (const size_t p : parameters) {
    requests_[p] = request;
    ++request->parameters;
  }
}

void ParameterShards::receive(Request& request) {
  for (const int bucket : request.buckets)
    if (!request.arrived.contains(bucket)) request.arrived[bucket] = session_->take_parameters(bucket, average_);
}

void ParameterShards::wait(std::span<const size_t> parameters) {
  for (const size_t p : parameters) {
    Request& request = *requests_.at(p);
    receive(request);
    Tensor values = tensor(p);
    const auto put = [&](const Slice& slice, const Tensor& from) {
      Tensor place = view_of(values, slice);
      copy(from.to(place.device()), place);
    };
    if (session_ == nullptr) {
      const Slice whole{static_cast<int>(p), 0, values.numel()};
      put(whole, slice(whole));
    } else {
      const Buckets& cut = session_->parameter_buckets();
      const auto [first, last] = cut.of(static_cast<int>(p));
      for (int b = first; b < last; ++b) {
        const std::span<const Slice> slices = cut.slices(b);
        for (size_t i = 0; i < slices.size(); ++i) {
          if (slices[i].tensor != static_cast<int>(p)) continue;
          const auto found = request.arrived.find(b);
          put(slices[i], found != request.arrived.end() ? tensor_of(found->second.at(i)) : slice(slices[i]));
        }
      }
    }
    end(p);
  }
}

void ParameterShards::cancel(std::span<const size_t> parameters) {
  for (const size_t p : parameters) end(p);
}

Tensor ParameterShards::rows(size_t table, std::span<const int64_t> rows) {
  const Shape shape = tensor(table).shape();
  const int64_t channels = shape[1];
  const auto index = static_cast<int>(table);
  if (session_ == nullptr) return state_.rows({index, 0, shape.numel()}, rows, average_);
  const Buckets& cut = session_->parameter_buckets();
  const auto [first, last] = cut.of(index);
  std::map<int, std::vector<int64_t>> absent;
  std::map<int, Tensor> values;
  std::map<int, int64_t> begins;  // of the rows in each bucket, among all
  size_t at = 0;
  for (int b = first; b < last && at < rows.size(); ++b) {
    const Slice& slice = cut.slices(b)[0];
    const size_t begin = at;
    while (at < rows.size() && rows[at] < slice.end / channels) ++at;
    if (at == begin) continue;
    const std::span<const int64_t> here = rows.subspan(begin, at - begin);
    begins[b] = static_cast<int64_t>(begin);
    if (state_.has(slice, average_)) values[b] = state_.rows(slice, here, average_).to(Device{});
    else absent[b] = {here.begin(), here.end()};
  }
  if (!absent.empty())
    for (const auto& [b, blob] : session_->fetch_rows(index, absent, average_)) values[b] = tensor_of(blob);
  Tensor all = Tensor::empty({static_cast<int64_t>(rows.size()), channels});
  for (const auto& [b, begin] : begins) {
    const int64_t count = values.at(b).numel() / channels;
    Tensor place = all.slice(0, begin, begin + count);
    copy(values.at(b).reshape({count, channels}), place);
  }
  return all;
}

// The buckets of a request for which nobody has waited are void.
void ParameterShards::end(size_t parameter) {
  const auto found = requests_.find(parameter);
  if (found == requests_.end()) return;
  const std::shared_ptr<Request> request = std::move(found->second);
  requests_.erase(found);
  if (--request->parameters > 0 || !request->arrived.empty() || request->buckets.empty()) return;
  session_->forget_parameters(request->buckets, average_);
}

}  // namespace elinvar
