// Formats a comparison as text and as JSON.
#include <algorithm>

#include "tensor/base/check.h"
#include "tools/repro/comparison.h"

namespace elinvar {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMostShown = 8;  // tensors, virtual ranks and damages in the text
constexpr size_t kFewShown = 3;   // tensors if nearly all differ

template <class T>
std::string list_of(const std::vector<T>& all) {
  const auto shown = static_cast<ptrdiff_t>(std::min(all.size(), kMostShown));
  return fmt::format("{}{}", fmt::join(all.begin(), all.begin() + shown, ", "), all.size() > kMostShown ? ", .." : "");
}

std::string of_vranks(const Divergence& d) {
  if (d.vranks.empty()) return "";
  if (d.of_vranks > 1 && static_cast<int>(d.vranks.size()) == d.of_vranks) return " of all virtual ranks";
  return fmt::format(" of virtual rank{} {}", d.vranks.size() == 1 ? "" : "s", list_of(d.vranks));
}

std::string where(const Divergence& d) {
  if (d.step == 0) return "the state that they begin with";
  switch (d.phase) {
    case Phase::data:
      return "the data" + of_vranks(d);
    case Phase::forward:
      return "the forward pass" + of_vranks(d);
    case Phase::gradient:
      return "the rank gradient" + of_vranks(d);
    case Phase::reduction:
      return "the reduction of the gradients";
    case Phase::update:
      return "the update";
  }
  return "";
}

// Lists what is uncertain about the divergence.
std::vector<std::string> doubts(const Divergence& d) {
  std::vector<std::string> doubts;
  if (d.gradient_possible)
    doubts.push_back("or in a rank gradient that the ledgers do not name (ledger.leaves = \"all\" names all)");
  if (d.state_equal_after + 1 < d.step && d.phase == Phase::update && d.fields.front() == "state")
    doubts.push_back(fmt::format("or in one of the updates since step {}, after which the states were last compared",
                                 d.state_equal_after));
  else if (d.state_equal_after + 1 < d.step && d.phase != Phase::data && d.phase != Phase::update)
    doubts.push_back(fmt::format("or the states differ since an update after step {}: they were not compared since",
                                 d.state_equal_after));
  return doubts;
}

std::string names_of(const Divergence& d) {
  std::string text;
  for (size_t i = 0; i < d.tensors.size() && i < kMostShown; ++i) {
    const DifferingTensor& tensor = d.tensors[i];
    text += (i == 0 ? "" : ", ") + tensor.name;
    if (tensor.chunks.size() == 1)
      text += fmt::format(" (elements from {} to {})", tensor.chunks[0] * tensor.chunk_elements,
                          (tensor.chunks[0] + 1) * tensor.chunk_elements - 1);
    else if (!tensor.chunks.empty()) text += fmt::format(" ({} of its chunks)", tensor.chunks.size());
  }
  return d.tensors.size() > kMostShown ? text + ", .." : text;
}

std::string first_line(const Comparison& c) {
  const auto and_damage = [&] { return c.damaged() ? "; but lines are damaged, and their steps not compared" : ""; };
  switch (c.verdict) {
    case Comparison::Verdict::equal:
      return fmt::format("equal: steps {} to {}, and the state after {} of them{}\n", c.first, c.last, c.states,
                         and_damage());
    case Comparison::Verdict::unknown:
      return "nothing to compare: no step is intact in both\n";
    default:
      return fmt::format("different from step {} on, in {}\n", c.divergence->step, where(*c.divergence));
  }
}

std::string reason(const Comparison& c) {
  std::string text;
  for (const KeyDifference& s : c.settings)
    text += fmt::format("  {}: {} is {} and {}\n", s.likely ? "likely cause" : "also different", s.key, s.a, s.b);
  for (const std::string& allowed : c.allows) text += fmt::format("  the contract allows it: {}\n", allowed);
  if (c.verdict == Comparison::Verdict::violation)
    text += "  nothing explains it: the same configuration and data must give the same bits\n";
  return text;
}

std::string checkpoint_text(const Comparison& c) {
  const CheckpointDifference& at = *c.checkpoint;
  const int64_t later = at.step - c.divergence->step;
  const std::vector<TensorDifference>& tensors = at.state.tensors;
  std::string text = fmt::format("  states after step {}{}: ", at.step,
                                 later == 0   ? ""
                                 : later == 1 ? ", a step later"
                                              : fmt::format(", {} steps later", later));
  text +=
      tensors.empty() ? "the same again" : fmt::format("{} of {} tensors differ", tensors.size(), at.state.compared);
  text += at.state.pattern.empty() ? "\n" : fmt::format("; {}\n", at.state.pattern);
  const size_t shown = std::min(tensors.size(), 2 * tensors.size() > at.state.compared ? kFewShown : kMostShown);
  for (size_t i = 0; i < shown; ++i) text += to_text(tensors[i], 4);
  if (tensors.size() > shown) text += fmt::format("    and {} more (--json has all)\n", tensors.size() - shown);
  for (const std::string& name : at.state.unlike) text += fmt::format("    {}: only one has it so\n", name);
  return text;
}

std::string damage_text(const char* run, const std::vector<Damage>& damage) {
  std::string text;
  for (size_t i = 0; i < damage.size() && i < kMostShown; ++i)
    text += fmt::format("  {}: {}\n", run, to_string(damage[i]));
  if (damage.size() > kMostShown) text += fmt::format("  {}: and {} more\n", run, damage.size() - kMostShown);
  return text;
}

OrderedJson to_json(const std::vector<KeyDifference>& differences, bool likely) {
  OrderedJson json = OrderedJson::array();
  for (const KeyDifference& d : differences) {
    json.push_back({{"key", d.key}, {"a", d.a}, {"b", d.b}});
    if (likely) json.back()["likely"] = d.likely;
  }
  return json;
}

OrderedJson to_json(const std::vector<Damage>& damage) {
  OrderedJson json = OrderedJson::array();
  for (const Damage& d : damage)
    json.push_back({{"file", d.file}, {"line", d.line}, {"what", d.what}, {"cut_off", d.cut_off}});
  return json;
}

OrderedJson to_json(const Divergence& d) {
  OrderedJson tensors = OrderedJson::array();
  for (const DifferingTensor& t : d.tensors) {
    tensors.push_back({{"name", t.name}});
    if (!t.chunks.empty()) tensors.back().update({{"chunks", t.chunks}, {"chunk_elements", t.chunk_elements}});
  }
  return {{"step", d.step},
          {"phase", name_of(d.phase)},
          {"fields", d.fields},
          {"virtual_ranks", d.vranks},
          {"of_virtual_ranks", d.of_vranks},
          {"tensors", tensors},
          {"of_tensors", d.of_tensors},
          {"state_equal_after", d.state_equal_after},
          {"doubts", doubts(d)}};
}

}  // namespace

std::string to_text(const Comparison& c) {
  std::string text = first_line(c);
  if (c.divergence) {
    const Divergence& d = *c.divergence;
    for (const std::string& doubt : doubts(d)) text += "  " + doubt + "\n";
    text += reason(c);
    text += c.first < d.step
                ? fmt::format("  equal until then: the facts of steps {} to {}", c.first, std::min(c.last, d.step - 1))
                : "  nothing before it is equal";
    text += d.state_equal_after > 0 ? fmt::format(", the state after step {}\n", d.state_equal_after) : "\n";
    text += fmt::format("  facts that differ in that step: {}\n", list_of(d.fields));
    if (!d.tensors.empty())
      text += fmt::format("  tensors by their digests: {} ({} of {})\n", names_of(d), d.tensors.size(), d.of_tensors);
    if (c.checkpoint) text += checkpoint_text(c);
  }
  if (c.verdict != Comparison::Verdict::unknown && c.length_a != c.length_b)
    text += fmt::format("  A ends at step {}, B at step {}\n", c.length_a, c.length_b);
  text += damage_text("A", c.damage_a) + damage_text("B", c.damage_b);
  if (c.divergence && !c.environment.empty()) {
    text += "  made with\n";
    for (const KeyDifference& e : c.environment) text += fmt::format("    {}: {} and {}\n", e.key, e.a, e.b);
  }
  return text;
}

OrderedJson to_json(const Comparison& c) {
  OrderedJson json = {{"verdict", name_of(c.verdict)},
                      {"common_steps", c.common},
                      {"first", c.first},
                      {"last", c.last},
                      {"states", c.states},
                      {"lengths", {c.length_a, c.length_b}}};
  if (c.divergence) json["divergence"] = to_json(*c.divergence);
  if (c.checkpoint) {
    json["checkpoint"] = to_json(c.checkpoint->state);
    json["checkpoint"]["step"] = c.checkpoint->step;
  }
  json["settings"] = to_json(c.settings, true);
  json["allows"] = c.allows;
  json["environment"] = to_json(c.environment, false);
  json["damage"] = {{"a", to_json(c.damage_a)}, {"b", to_json(c.damage_b)}};
  return json;
}

}  // namespace elinvar
