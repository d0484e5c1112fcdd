#include "nn/parameters.h"

#include <string_view>
#include <utility>

#include "nn/touched_rows.h"
#include "tensor/base/check.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"
#include "tensor/ops/copy.h"
#include "tensor/philox.h"

namespace elinvar {

namespace {

constexpr double kMostElements = 0x1p40;  // per tensor

thread_local bool outline = false;

// The key of a tensor's initial values: a separate stream for every (seed, name).
uint64_t stream_key(uint64_t seed, std::string_view name) {
  const uint64_t n = key_of(name);
  const Random4 r = philox(seed, static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), 0, 0);
  return r.v[0] | uint64_t{r.v[1]} << 32;
}

// Copies tensors into those of the same names, once all are known to fit.
void check_and_copy(StateDict own, const StateDict& from) {
  std::vector<std::string> known;
  for (const auto& [name, tensor] : own) known.push_back(name);
  for (const auto& [name, tensor] : from)
    check(own.count(name) == 1, "[load] the network has no tensor '{}'{}", name, spelling_hint(name, known));
  for (const auto& [name, tensor] : own) {
    const auto it = from.find(name);
    check(it != from.end(), "[load] tensor '{}' {} is missing in what is loaded", name, to_string(tensor.shape()));
    check(it->second.shape() == tensor.shape() && it->second.dtype() == tensor.dtype(),
          "[load] tensor '{}': {} {} expected, got {} {}", name, name_of(tensor.dtype()), to_string(tensor.shape()),
          name_of(it->second.dtype()), to_string(it->second.shape()));
  }
  for (auto& [name, tensor] : own) copy(from.at(name), tensor);
}

}  // namespace

// Greedy matching: on a mismatch only the last asterisk takes one more character. Earlier asterisks never need to be
// revisited, so the time is at most pattern length times name length.
bool name_matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, asterisk = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      asterisk = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (asterisk != std::string_view::npos) {
      p = asterisk + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::string Parameter::whole_name() const { return cut.shards == 1 ? name : name.substr(0, name.rfind('@')); }

bool Parameter::sparse() const { return touched && touched->sparse(); }

bool Parameter::computed_here(const ShardGroup& group) const {
  if (cut.shards == 1) return true;
  const ShardRange own = group.own(cut.shards);
  return own.begin <= shard && shard < own.end;
}

int64_t Parameters::count() const {
  int64_t n = 0;
  for (const Parameter& p : list) n += p.var.value().numel();
  return n;
}

StateDict Parameters::state() const {
  StateDict state;
  for (const Parameter& p : list) state[p.name] = p.var.value();
  state.merge(buffer_state());
  return state;
}

void Parameters::move_to(Device device) {
  for (Parameter& p : list) {
    const Tensor here = p.var.value();
    if (here.device() == device) continue;
    Tensor& there = p.var.mutable_value() = Tensor::absent(here.shape(), here.dtype(), device);
    if (!here.resident()) continue;
    there.restore();
    copy(here, there);
  }
  for (const std::shared_ptr<Buffer>& buffer : buffers) buffer->value = buffer->value.to(device);
}

StateDict Parameters::whole_state() const {
  StateDict state;
  std::vector<Tensor> shards;
  std::string name;  // of the whole of `shards`
  for (const Parameter& p : list) {
    if (shards.empty()) name = p.whole_name();
    invariant(p.shard == static_cast<int>(shards.size()) && p.whole_name() == name,
              "the shards of a parameter are adjacent, in order and complete");
    shards.push_back(p.var.value());
    if (p.shard + 1 < p.cut.shards) continue;
    state[name] = p.cut.shards == 1 ? shards[0] : p.cut.joined(shards);
    shards.clear();
  }
  invariant(shards.empty(), "the last parameter's shards are complete");
  for (const auto& b : buffers) state[b->name] = b->value;
  return state;
}

StateDict Parameters::buffer_state() const {
  StateDict state;
  for (const auto& b : buffers) state[b->name] = b->value;
  return state;
}

void Parameters::load(const StateDict& from) { check_and_copy(state(), from); }

void Parameters::load_buffers(const StateDict& from) { check_and_copy(buffer_state(), from); }

void Parameters::load_whole(const StateDict& from) {
  StateDict whole = whole_state();
  check_and_copy(whole, from);
  for (Parameter& p : list)
    if (p.cut.shards > 1) copy(p.cut.part_of(whole.at(p.whole_name()), p.shard), p.var.mutable_value());
}

void exempt_from_decay(Parameters& parameters, std::span<const std::string> entries) {
  for (Parameter& p : parameters.list) p.decay = true;
  for (const std::string& entry : entries) {
    bool found = false;
    for (Parameter& p : parameters.list) {
      if (entry == "vectors" ? p.var.ndim() >= 2 : !name_matches(entry, p.whole_name())) continue;
      p.decay = false;
      found = true;
    }
    std::vector<std::string> names = {"vectors"};
    for (const Parameter& p : parameters.list) names.push_back(p.whole_name());
    const std::string nearest = found ? "" : nearest_spelling(entry, names);
    check_setting(found, "optimizer.exempt", "names '{}', which no parameter is called{}", entry,
                  nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest));
  }
}

OutlineScope::OutlineScope() : before_(std::exchange(outline, true)) {}
OutlineScope::~OutlineScope() { outline = before_; }
bool OutlineScope::active() { return outline; }

std::string Scope::new_name(const std::string& name, const Shape& shape) const {
  std::string full = prefix_ + name;
  double elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<double>(extent);
  if (elements > kMostElements)
    throw ParameterError(fmt::format("'{}' of shape {} is larger than any memory", full, to_string(shape)));
  if (!parameters_->names.insert(full).second)
    throw ParameterError(fmt::format("there is a parameter '{}' already", full));
  return full;
}

Var Scope::parameter(const std::string& name, const Shape& shape, const Initializer& init) const {
  std::string full = new_name(name, shape);
  Tensor values = Tensor::absent(shape);
  const auto initialise = [init, key = key(name)](Tensor& t) { init(t, key); };
  if (!outline) {
    values.restore();
    initialise(values);
  }
  Var var(std::move(values), true);
  parameters_->list.push_back({.name = std::move(full), .var = var, .initialise = initialise});
  return var;
}

Var Scope::table(const std::string& name, const Shape& shape, const Initializer& init,
                 std::shared_ptr<TouchedRows> touched) const {
  Var var = parameter(name, shape, init);
  parameters_->list.back().touched = std::move(touched);
  return var;
}

std::vector<Var> Scope::shards(const std::string& name, const Shape& shape, const Initializer& init,
                               const Cut& cut) const {
  if (cut.shards == 1) return {parameter(name, shape, init)};
  const auto whole_values = [shape, init, key = stream_key(seed_, new_name(name, shape))] {
    Tensor whole = Tensor::empty(shape);
    init(whole, key);
    return whole;
  };
  const Tensor whole = outline ? Tensor{} : whole_values();
  std::vector<Var> parts;
  for (int s = 0; s < cut.shards; ++s) {
    Tensor values = Tensor::absent(cut.shape_of(shape, s));
    if (!outline) {
      values.restore();
      copy(cut.part_of(whole, s), values);
    }
    parts.emplace_back(std::move(values), true);
    parameters_->list.push_back(
        {.name = new_name(fmt::format("{}@{}", name, s), parts.back().shape()),
         .var = parts.back(),
         .cut = cut,
         .shard = s,
         .initialise = [whole_values, cut, s](Tensor& t) { copy(cut.part_of(whole_values(), s), t); }});
  }
  return parts;
}

uint64_t Scope::key(const std::string& name) const { return stream_key(seed_, prefix_ + name); }

std::shared_ptr<Buffer> Scope::buffer(const std::string& name, const Shape& shape, double value, DType dtype) const {
  std::string full = new_name(name, shape);
  Tensor values = outline ? Tensor::scalar(value, dtype).expand(shape) : Tensor::full(shape, value, dtype);
  auto buffer = std::make_shared<Buffer>(Buffer{std::move(full), std::move(values)});
  parameters_->buffers.push_back(buffer);
  return buffer;
}

}  // namespace elinvar
