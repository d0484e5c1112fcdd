#include "tools/repro/comparison.h"

#include <algorithm>
#include <set>

#include "tensor/base/check.h"
#include "tensor/digest_tree.h"
#include "tools/config/config.h"
#include "tools/training/environment.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

Phase phase_of(const std::string& field) {
  if (field == "batch_size" || field == "batch") return Phase::data;
  if (field == "loss") return Phase::forward;
  if (field.starts_with("leaf")) return Phase::gradient;
  return field == "gradient" ? Phase::reduction : Phase::update;
}

// Returns the indices at which two strings of `width`-character entries differ; nothing if they cannot be compared.
std::optional<std::vector<int64_t>> differing(const std::string& a, const std::string& b, size_t width) {
  if (a.empty() || a.size() != b.size() || a.size() % width != 0) return std::nullopt;
  std::vector<int64_t> indices;
  for (size_t at = 0; at < a.size(); at += width)
    if (a.compare(at, width, b, at, width) != 0) indices.push_back(static_cast<int64_t>(at / width));
  return indices;
}

void locate_vranks(Divergence& d, const std::string& a, const std::string& b, size_t width) {
  const auto indices = differing(a, b, width);
  if (!indices) return;
  d.of_vranks = static_cast<int>(a.size() / width);
  for (const int64_t vrank : *indices) d.vranks.push_back(static_cast<int>(vrank));
}

// Records the virtual ranks whose batch digests differ, and whether their inputs or their targets do. Older ledgers
// digest inputs only.
void locate_batches(Divergence& d, const std::string& a, const std::string& b, int vranks) {
  const size_t width = 2 * kShortDigest;
  if (vranks <= 0 || a.size() != width * static_cast<size_t>(vranks)) return locate_vranks(d, a, b, kShortDigest);
  locate_vranks(d, a, b, width);
  const auto indices = differing(a, b, kShortDigest);
  if (!indices) return;
  d.of_tensors = 2;
  for (const int64_t which : {0, 1})
    if (std::any_of(indices->begin(), indices->end(), [&](int64_t index) { return index % 2 == which; }))
      d.tensors.push_back({which == 0 ? "input" : "target"});
}

// Batch-statistic sums follow the gradients of the parameters: a mean and a variance for each batch norm, in the order
// of the network.
std::string name_of_statistic_sum(size_t index) {
  return fmt::format("{} of batch norm {}", index % 2 == 0 ? "mean" : "variance", index / 2);
}

void locate_tensors(Divergence& d, const std::vector<TensorLayout>& layout, const std::string& a,
                    const std::string& b) {
  const auto indices = differing(a, b, kShortDigest);
  if (!indices) return;
  d.of_tensors = a.size() / kShortDigest;
  for (const int64_t index : *indices) {
    const auto i = static_cast<size_t>(index);
    d.tensors.push_back({i < layout.size() ? layout[i].name : name_of_statistic_sum(i - layout.size())});
  }
}

void locate_chunks(Divergence& d, const std::vector<TensorLayout>& layout, const std::string& a, const std::string& b) {
  const auto indices = differing(a, b, kShortDigest);
  if (!indices) return;
  int64_t before = 0;
  for (const TensorLayout& tensor : layout) {
    const int64_t chunks = tensor.chunks() > 1 ? tensor.chunks() : 0;
    for (DifferingTensor& found : d.tensors) {
      if (found.name != tensor.name || chunks == 0) continue;
      found.chunk_elements = kDigestChunkBytes / tensor.element_bytes();
      for (const int64_t index : *indices)
        if (index >= before && index < before + chunks) found.chunks.push_back(index - before);
    }
    before += chunks;
  }
}

// Adds the details that digests.jsonl of both sides has for the step.
void locate(Divergence& d, const RunRecord& a, const RunRecord& b) {
  const auto x = a.digests(d.step), y = b.digests(d.step);
  if (!x || !y) return;
  const DigestHeader &layout = *a.digest_header(), &other = *b.digest_header();
  const bool same_gradients = to_json(layout.gradient) == to_json(other.gradient);
  if (d.phase == Phase::data && a.header()) locate_batches(d, x->batches, y->batches, a.header()->virtual_ranks);
  if (d.phase == Phase::forward) locate_vranks(d, x->losses, y->losses, 16);
  if (d.phase == Phase::gradient && same_gradients && !d.vranks.empty()) {
    const auto ours = x->leaves.find(d.vranks[0]), theirs = y->leaves.find(d.vranks[0]);
    if (ours != x->leaves.end() && theirs != y->leaves.end())
      locate_tensors(d, layout.gradient, ours->second, theirs->second);
  }
  if (d.phase == Phase::reduction && same_gradients) locate_tensors(d, layout.gradient, x->gradient, y->gradient);
  if (d.phase == Phase::update && to_json(layout.state) == to_json(other.state)) {
    locate_tensors(d, layout.state, x->state.tensors, y->state.tensors);
    locate_chunks(d, layout.state, x->state.chunks, y->state.chunks);
  }
}

Divergence divergence_at(int64_t step, std::vector<std::string> fields, const RunRecord& a, const RunRecord& b) {
  Divergence d{.step = step, .phase = phase_of(fields[0]), .fields = std::move(fields)};
  const auto x = a.lines().find(step), y = b.lines().find(step);
  if (x != a.lines().end() && y != b.lines().end()) {
    int named = 0;
    for (const auto& [vrank, gradient] : x->second.leaves) {
      const auto other = y->second.leaves.find(vrank);
      if (other == y->second.leaves.end()) continue;
      ++named;
      if (d.phase == Phase::gradient && gradient != other->second) d.vranks.push_back(vrank);
    }
    if (d.phase == Phase::gradient) d.of_vranks = named;
    // A virtual rank without samples has no gradient.
    const auto all = [&](const RunRecord& run) {
      return run.header() && run.header()->options.leaves == LedgerOptions::Leaves::all;
    };
    d.gradient_possible = d.phase == Phase::reduction && !(all(a) && all(b)) &&
                          (!a.header() || a.header()->virtual_ranks > 1 || named == 0);
  }
  locate(d, a, b);
  return d;
}

// Finds the first step in which a fact differs that both sides have, including their checkpoints.
void find_divergence(Comparison& c, const RunRecord& a, const RunRecord& b) {
  std::set<int64_t> steps;
  for (const auto& [step, line] : a.lines())
    if (b.lines().contains(step)) steps.insert(step);
  c.common = static_cast<int64_t>(steps.size());
  if (!steps.empty()) c.first = *steps.begin(), c.last = *steps.rbegin();
  for (const int64_t step : a.checkpoints()) steps.insert(step);
  int64_t equal_after = 0;
  for (const int64_t step : steps) {
    std::vector<std::string> fields;
    const auto x = a.lines().find(step), y = b.lines().find(step);
    if (x != a.lines().end() && y != b.lines().end()) fields = differing_fields(x->second, y->second);
    const auto ours = a.state(step), theirs = b.state(step);
    if (ours && theirs && *ours != *theirs && (fields.empty() || fields.back() != "state")) fields.push_back("state");
    if (!fields.empty()) {
      c.divergence = divergence_at(step, std::move(fields), a, b);
      c.divergence->state_equal_after = equal_after;
      return;
    }
    if (ours && theirs) equal_after = step, ++c.states;
  }
}

void compare_checkpoints(Comparison& c, const RunRecord& a, const RunRecord& b) {
  const std::vector<int64_t>& theirs = b.checkpoints();
  for (const int64_t step : a.checkpoints()) {
    if (step < c.divergence->step || !std::binary_search(theirs.begin(), theirs.end(), step)) continue;
    try {
      c.checkpoint = {step, differences(a.checkpoint(step).state, b.checkpoint(step).state)};
      return;
    } catch (const Failure&) {  // a later one may be undamaged
    }
  }
}

// --- Causes.

// Whether a setting could be the reason that the runs part at this point and not earlier.
bool bears_on(const Divergence& d, const std::string& key) {
  const auto is = [&](std::initializer_list<const char*> prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* p) { return key.starts_with(p); });
  };
  if (d.phase == Phase::data)
    return is({"data", "run.seed", "run.batch_size", "run.virtual_ranks", "run.scaling", "run.batch_max", "run.grow"});
  const bool computing = is({"model", "loss", "run.seed", "run.numerics", "run.precision", "run.virtual_ranks"});
  const bool updating = is({"optimizer", "schedule", "run.steps", "run.epochs", "run.ramp_steps"});
  if (d.phase == Phase::update) return updating || is({"run.numerics", "run.precision"}) || (computing && d.step == 1);
  // An update that was not compared may precede the difference.
  return computing || (updating && d.state_equal_after + 1 < d.step);
}

// Returns the lines of `text` that are not in `other`.
std::string lines_without(const std::string& text, const std::string& other) {
  std::set<std::string> theirs;
  const auto each = [](const std::string& of, auto&& visit) {
    for (size_t begin = 0; begin < of.size();) {
      const size_t end = std::min(of.find('\n', begin), of.size());
      if (end > begin) visit(of.substr(begin, end - begin));
      begin = end + 1;
    }
  };
  std::string left;
  each(other, [&](const std::string& line) { theirs.insert(line); });
  each(text, [&](const std::string& line) {
    if (!theirs.contains(line)) left += (left.empty() ? "" : "; ") + line;
  });
  return left;
}

// A run begins with a new network or with imported weights, which are its checkpoint of step 0.
std::optional<KeyDifference> first_states(const Divergence& d, const RunRecord& a, const RunRecord& b) {
  const auto told = [](const RunRecord& run) {
    const std::vector<int64_t>& checkpoints = run.checkpoints();
    if (checkpoints.empty() || checkpoints[0] != 0) return std::string("a new network");
    const std::optional<Digest> digest = run.state(0);
    return "imported weights" + (digest ? ", " + digest->hex() : "");
  };
  const std::string x = told(a), y = told(b);
  if (x == y) return std::nullopt;
  return KeyDifference{"the first state", x, y, d.step == 0 || (d.phase != Phase::data && d.state_equal_after == 0)};
}

std::vector<KeyDifference> setting_differences(const RunRecord& a, const RunRecord& b) {
  std::vector<KeyDifference> found;
  try {
    const auto ours = decisive_settings(read_config(a.path() / "config.toml")),
               theirs = decisive_settings(read_config(b.path() / "config.toml"));
    std::set<std::string> keys;
    for (const auto& [key, value] : ours) keys.insert(key);
    for (const auto& [key, value] : theirs) keys.insert(key);
    for (const std::string& key : keys) {
      const std::string x = ours.contains(key) ? ours.at(key) : "", y = theirs.contains(key) ? theirs.at(key) : "";
      if (x == y) continue;
      if (x.find('\n') == std::string::npos && y.find('\n') == std::string::npos) found.push_back({key, x, y});
      else found.push_back({key, lines_without(x, y), lines_without(y, x)});
    }
  } catch (const std::exception&) {  // damaged or gone: the header's digests show whether they differ
  }
  if (!a.header() || !b.header()) return found;
  if (found.empty() && a.header()->config != b.header()->config)
    found.push_back({"configuration", a.header()->config.hex(), b.header()->config.hex(), true});
  const bool other_data =
      std::any_of(found.begin(), found.end(), [](const auto& d) { return d.key.starts_with("data."); });
  if (a.header()->data != b.header()->data && !other_data)
    found.push_back({"data", a.header()->data.hex(), b.header()->data.hex()});
  return found;
}

std::vector<std::string> reasons_to_differ(const Divergence& d, const RunRecord& a, const RunRecord& b) {
  std::vector<std::string> reasons;
  if (!a.header() || !b.header()) return reasons;
  const LedgerHeader &x = *a.header(), &y = *b.header();
  if (x.numerics_version != y.numerics_version)
    reasons.push_back(
        fmt::format("they have versions {} and {} of the numerics", x.numerics_version, y.numerics_version));
  if (const std::string kinds = other_kinds(a, b); !kinds.empty()) reasons.push_back(kinds);
  if (x.scaling == "adaptive" && y.scaling == "adaptive" && d.fields[0] == "batch_size")
    reasons.push_back(
        "with run.scaling = \"adaptive\" the batch follows the workers; train run --replay does such a run again");
  return reasons;
}

}  // namespace

const char* name_of(Phase phase) {
  constexpr const char* kNames[] = {"data", "forward", "leaf", "reduction", "update"};
  return kNames[static_cast<size_t>(phase)];
}

const char* name_of(Comparison::Verdict verdict) {
  constexpr const char* kNames[] = {"equal", "explained", "allowed", "violation", "unknown"};
  return kNames[static_cast<size_t>(verdict)];
}

bool Comparison::damaged() const {
  const auto hides = [](const Damage& d) { return !d.cut_off && d.file == "ledger.jsonl"; };
  return std::any_of(damage_a.begin(), damage_a.end(), hides) || std::any_of(damage_b.begin(), damage_b.end(), hides);
}

Comparison compare(const RunRecord& a, const RunRecord& b) {
  Comparison c;
  c.damage_a = a.damage();
  c.damage_b = b.damage();
  if (!a.lines().empty()) c.length_a = a.lines().rbegin()->first;
  if (!b.lines().empty()) c.length_b = b.lines().rbegin()->first;
  find_divergence(c, a, b);
  c.settings = setting_differences(a, b);
  c.environment = environment_differences(a, b);
  if (!c.divergence) {
    c.verdict = c.common > 0 ? Comparison::Verdict::equal : Comparison::Verdict::unknown;
    return c;
  }
  if (auto other = first_states(*c.divergence, a, b)) c.settings.push_back(std::move(*other));
  bool explained = false;
  for (KeyDifference& setting : c.settings) {
    setting.likely = setting.likely || bears_on(*c.divergence, setting.key);
    explained = explained || setting.likely;
  }
  c.allows = reasons_to_differ(*c.divergence, a, b);
  c.verdict = explained           ? Comparison::Verdict::explained
              : !c.allows.empty() ? Comparison::Verdict::allowed
                                  : Comparison::Verdict::violation;
  compare_checkpoints(c, a, b);
  return c;
}

std::string other_kinds(const RunRecord& a, const RunRecord& b) {
  if (!a.header() || !b.header() || a.header()->numerics != "fast" || b.header()->numerics != "fast") return "";
  const auto kinds_of = [](const RunRecord& run) {
    std::set<std::string> kinds = {kind_of_gpu(run.environment())};
    for (const RunRecord::Worker& worker : run.workers()) kinds.insert(kind_of_gpu(worker.environment));
    return kinds;
  };
  const std::set<std::string> ours = kinds_of(a), theirs = kinds_of(b);
  if (ours == theirs) return "";
  return fmt::format("with run.numerics = \"fast\" bits are those of one kind of device, and these differ: {} and {}",
                     fmt::join(ours, ", "), fmt::join(theirs, ", "));
}

int exit_code_of(const Comparison& c) {
  if (c.divergence) return 1;
  return c.verdict == Comparison::Verdict::unknown || c.damaged() ? 3 : 0;
}

}  // namespace elinvar
