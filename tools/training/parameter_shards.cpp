#include "tools/training/parameter_shards.h"

#include <algorithm>
#include <set>

#include "tensor/ops/copy.h"

namespace elinvar {

void ParameterShards::request(std::span<const size_t> parameters) {
  std::set<int> buckets;
  if (session_ != nullptr) {
    const Buckets& cut = session_->parameter_buckets();
    for (const size_t p : parameters) {
      const auto [first, last] = cut.of(static_cast<int>(p));
      for (int b = first; b < last; ++b)
        for (const Slice& slice : cut.slices(b))
          if (slice.tensor == static_cast<int>(p) && !state_.has(slice)) buckets.insert(b);
    }
  }
  const auto request = std::make_shared<Request>(Request{.buckets = {buckets.begin(), buckets.end()}});
  if (!buckets.empty()) session_->ask_parameters(request->buckets);
  for (const size_t p : parameters) {
    requests_[p] = request;
    ++request->parameters;
  }
}

void ParameterShards::receive(Request& request) {
  for (const int bucket : request.buckets)
    if (!request.arrived.contains(bucket)) request.arrived[bucket] = session_->take_parameters(bucket);
}

void ParameterShards::wait(std::span<const size_t> parameters) {
  for (const size_t p : parameters) {
    Request& request = *requests_.at(p);
    receive(request);
    Tensor values = setup_.network->parameters.list[p].var.value();
    const auto put = [&](const Slice& slice, const Tensor& from) {
      Tensor place = view_of(values, slice);
      copy(from.to(place.device()), place);
    };
    if (session_ == nullptr) {
      const Slice whole{static_cast<int>(p), 0, values.numel()};
      put(whole, state_.parameter(whole));
    } else {
      const Buckets& cut = session_->parameter_buckets();
      const auto [first, last] = cut.of(static_cast<int>(p));
      for (int b = first; b < last; ++b) {
        const std::span<const Slice> slices = cut.slices(b);
        for (size_t i = 0; i < slices.size(); ++i) {
          if (slices[i].tensor != static_cast<int>(p)) continue;
          const auto found = request.arrived.find(b);
          put(slices[i], found != request.arrived.end() ? tensor_of(found->second.at(i)) : state_.parameter(slices[i]));
        }
      }
    }
    end(p);
  }
}

void ParameterShards::cancel(std::span<const size_t> parameters) {
  for (const size_t p : parameters) end(p);
}

// The buckets of a request for which nobody has waited are void.
void ParameterShards::end(size_t parameter) {
  const auto found = requests_.find(parameter);
  if (found == requests_.end()) return;
  const std::shared_ptr<Request> request = std::move(found->second);
  requests_.erase(found);
  if (--request->parameters > 0 || !request->arrived.empty() || request->buckets.empty()) return;
  session_->forget_parameters(request->buckets);
}

}  // namespace elinvar
