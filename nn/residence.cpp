#include "nn/residence.h"

#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

Residence::Residence(const SegmentedNetwork& network, ParameterSource& source, const ShardGroup& group)
    : network_(network), source_(source), holdings_(network.parameters.list.size()) {
  for (const Segment& segment : network.segments()) {
    std::vector<size_t>& read = read_.emplace_back();
    for (const size_t p : segment.parameters)
      if (network.parameters.list[p].computed_here(group) && !network.parameters.list[p].sparse()) read.push_back(p);
  }
  for (size_t p = 0; p < holdings_.size(); ++p) tensor(p).release();
  // Those of an outline share one element.
  for (const std::shared_ptr<Buffer>& buffer : network.parameters.buffers)
    buffer->value = buffer->value.to_contiguous();
}

Residence::~Residence() {
  if (next_) drop(*next_);
}

void Residence::enter(size_t segment, std::optional<size_t> next) {
  check(segment < read_.size() && (!next || *next < read_.size()), "[residence] segment {} of {}, then {}", segment,
        read_.size(), next.value_or(segment));
  if (next_ && *next_ != segment) drop(*std::exchange(next_, std::nullopt));
  if (!std::exchange(next_, std::nullopt)) hold(segment);
  try {
    std::vector<size_t> awaited;
    for (const size_t p : read_[segment])
      if (!holdings_[p].there) awaited.push_back(p);
    if (!awaited.empty()) source_.wait(awaited);
    for (const size_t p : awaited) holdings_[p].there = true;
    if (next) hold(*next);
    next_ = next;
  } catch (...) {
    drop(segment);
    throw;
  }
}

void Residence::leave(size_t segment) { drop(segment); }

Tensor& Residence::tensor(size_t parameter) const {
  return Var(network_.parameters.list[parameter].var).mutable_value();
}

void Residence::hold(size_t segment) {
  std::vector<size_t> absent;
  for (const size_t p : read_[segment])
    if (holdings_[p].users == 0) absent.push_back(p);
  try {
    for (const size_t p : absent) tensor(p).restore();
    if (!absent.empty()) source_.request(absent);
  } catch (...) {
    for (const size_t p : absent) tensor(p).release();
    throw;
  }
  for (const size_t p : read_[segment]) ++holdings_[p].users;
}

void Residence::drop(size_t segment) {
  std::vector<size_t> unneeded, awaited;
  for (const size_t p : read_[segment]) {
    if (--holdings_[p].users > 0) continue;
    unneeded.push_back(p);
    if (!std::exchange(holdings_[p].there, false)) awaited.push_back(p);
  }
  if (!awaited.empty()) source_.cancel(awaited);
  for (const size_t p : unneeded) tensor(p).release();
}

WholeResidence::WholeResidence(const Network& network, ParameterSource& source, const ShardGroup& group)
    : network_(network) {
  const std::vector<Parameter>& parameters = network.parameters.list;
  for (size_t p = 0; p < parameters.size(); ++p)
    if (parameters[p].computed_here(group) && !parameters[p].sparse()) read_.push_back(p);
  try {
    for (const size_t p : read_) Var(parameters[p].var).mutable_value().restore();
    source.request(read_);
    try {
      source.wait(read_);
    } catch (...) {
      source.cancel(read_);
      throw;
    }
  } catch (...) {
    release();
    throw;
  }
}

WholeResidence::~WholeResidence() { release(); }

void WholeResidence::release() {
  for (const size_t p : read_) Var(network_.parameters.list[p].var).mutable_value().release();
}

}  // namespace elinvar
