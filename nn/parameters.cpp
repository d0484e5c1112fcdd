#include "nn/parameters.h"

#include <string_view>

#include "tensor/check.h"
#include "tensor/ops/copy.h"
#include "tensor/philox.h"
#include "tensor/setting.h"
#include "tensor/spelling.h"

namespace elinvar {

namespace {

// The key of a tensor's initial values: a stream of its own for every (seed, name).
uint64_t stream_key(uint64_t seed, std::string_view name) {
  const uint64_t n = key_of(name);
  const Random4 r = philox(seed, static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), 0, 0);
  return r.v[0] | uint64_t{r.v[1]} << 32;
}

}  // namespace

bool name_matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*')
    return !name.empty() && name[0] == pattern[0] && name_matches(pattern.substr(1), name.substr(1));
  for (size_t skip = 0; skip <= name.size(); ++skip)
    if (name_matches(pattern.substr(1), name.substr(skip))) return true;
  return false;
}

int64_t Parameters::count() const {
  int64_t n = 0;
  for (const Parameter& p : list) n += p.var.value().numel();
  return n;
}

StateDict Parameters::state() const {
  StateDict state;
  for (const Parameter& p : list) state[p.name] = p.var.value();
  for (const auto& b : buffers) state[b->name] = b->value;
  return state;
}

void Parameters::move_to(Device device) {
  for (Parameter& p : list) p.var.mutable_value() = p.var.value().to(device);
  for (const std::shared_ptr<Buffer>& buffer : buffers) buffer->value = buffer->value.to(device);
}

void Parameters::load(const StateDict& from) {
  StateDict own = state();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : own) names.push_back(name);
  for (const auto& [name, tensor] : from)
    check(own.count(name) == 1, "[load] the network has no tensor '{}'{}", name, spelling_hint(name, names));
  for (const auto& [name, tensor] : own) {
    const auto it = from.find(name);
    check(it != from.end(), "[load] tensor '{}' {} is missing in what is loaded", name, to_string(tensor.shape()));
    check(it->second.shape() == tensor.shape() && it->second.dtype() == tensor.dtype(),
          "[load] tensor '{}': {} {} expected, got {} {}", name, name_of(tensor.dtype()), to_string(tensor.shape()),
          name_of(it->second.dtype()), to_string(it->second.shape()));
  }
  // Nothing is written before everything is known to fit.
  for (auto& [name, tensor] : own) copy(from.at(name), tensor);
}

void exempt_from_decay(Parameters& parameters, std::span<const std::string> entries) {
  for (Parameter& p : parameters.list) p.decay = true;
  for (const std::string& entry : entries) {
    bool found = false;
    for (Parameter& p : parameters.list) {
      if (entry == "vectors" ? p.var.ndim() >= 2 : !name_matches(entry, p.name)) continue;
      p.decay = false;
      found = true;
    }
    std::vector<std::string> names = {"vectors"};
    for (const Parameter& p : parameters.list) names.push_back(p.name);
    const std::string nearest = found ? "" : nearest_spelling(entry, names);
    check_setting(found, "optimizer.exempt", "names '{}', which no parameter is called{}", entry,
                  nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  }
}

Var Scope::parameter(const std::string& name, const Shape& shape, const Initializer& init) const {
  const std::string full = prefix_ + name;
  for (const Parameter& p : parameters_->list) check(p.name != full, "[scope] a parameter '{}' exists already", full);
  Tensor values = Tensor::empty(shape);
  init(values, stream_key(seed_, full));
  Var var(std::move(values), true);
  parameters_->list.push_back({full, var});
  return var;
}

std::shared_ptr<Buffer> Scope::buffer(const std::string& name, const Shape& shape, double value) const {
  const std::string full = prefix_ + name;
  for (const auto& b : parameters_->buffers) check(b->name != full, "[scope] a buffer '{}' exists already", full);
  auto buffer = std::make_shared<Buffer>(Buffer{full, Tensor::full(shape, value)});
  parameters_->buffers.push_back(buffer);
  return buffer;
}

}  // namespace elinvar
