#include "tools/repro/report_step.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/base/activity.h"
#include "tools/repro/pipeline_bubble.h"
#include "tools/repro/report_curves.h"

namespace elinvar {

using Ordered = nlohmann::ordered_json;

namespace {

constexpr size_t kMostStepSpans = 6000;  // of all rows together
constexpr size_t kMostStepRows = 64;
constexpr size_t kMostBubbles = 16;
constexpr double kStepColumns = 2000;  // columns of a screen: what is shorter than one is not shown

enum class SpanKind { forward, backward, wait, exchange, update, other };
constexpr const char* kSpanKinds[] = {"forward", "backward", "wait", "exchange", "update", "other"};

SpanKind span_kind_of(std::string_view name) {
  if (name == "forward") return SpanKind::forward;
  if (name == "backward") return SpanKind::backward;
  if (name == "update") return SpanKind::update;
  if (name.starts_with("waiting")) return SpanKind::wait;
  if (name.starts_with("exchange") || name == "reduction") return SpanKind::exchange;
  return SpanKind::other;
}

bool is_pass(SpanKind kind) { return kind == SpanKind::forward || kind == SpanKind::backward; }

// An activity of a worker's loop within the step, in seconds since any moment.
struct LoopActivity {
  std::string name;
  double begin, end;
  int vrank = activity::kNoRank;
};

struct StepSpan {
  std::string_view name;  // of an activity that lives on
  double begin, end;
  int depth, vrank;
};

// A worker's step: activities are ascending and nested.
struct WorkerStep {
  double begin = 0, end = 0;
  std::vector<LoopActivity> activities = {};
};

// Divides a step into spans that say what the loop did at each moment: passes whole, and what is within them once more;
// else the innermost activity. What is within a wait belongs to it. Adds the seconds of each kind to `kinds`, those of
// passes without what is within.
class StepDivision {
 public:
  StepDivision(const WorkerStep& step, std::vector<double>& kinds) : kinds_(kinds) {
    for (const LoopActivity& a : step.activities) {
      close(a.begin);
      if (!open_.empty() && open_.back().kind == SpanKind::wait) continue;
      begin(a);
    }
    close(step.end);
    while (!open_.empty()) end_innermost(std::min(step.end, open_.back().end));
    std::stable_sort(spans.begin(), spans.end(), [](const StepSpan& a, const StepSpan& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.depth < b.depth;
    });
  }
  std::vector<StepSpan> spans;
  std::vector<PassSpan> passes;  // those of the loop's rank gradients, not of others within another activity

 private:
  struct Open {
    std::string_view name;
    SpanKind kind;
    double end;
    int vrank;
    bool in_pass;
  };

  void close(double until) {
    while (!open_.empty() && open_.back().end <= until) end_innermost(open_.back().end);
    if (!open_.empty()) told(until);
    at_ = until;
  }
  void end_innermost(double end) {
    told(end);
    open_.pop_back();
  }
  void begin(const LoopActivity& a) {
    const SpanKind kind = span_kind_of(a.name);
    const bool outermost = open_.empty();
    if (outermost && is_pass(kind)) {
      spans.push_back({a.name, a.begin, a.end, 0, a.vrank});
      passes.push_back({.vrank = a.vrank, .backward = kind == SpanKind::backward, .begin = a.begin, .end = a.end});
    }
    const bool in_pass = !outermost && (open_.back().in_pass || is_pass(open_.back().kind));
    open_.push_back({a.name, kind, a.end, a.vrank < 0 && !outermost ? open_.back().vrank : a.vrank, in_pass});
  }
  // The innermost open activity takes the time up to `until`.
  void told(double until) {
    if (until <= at_) return;
    const Open& now = open_.back();
    kinds_[static_cast<size_t>(now.kind)] += until - at_;
    const bool whole_pass = is_pass(now.kind) && open_.size() == 1;  // is there already
    if (!whole_pass) spans.push_back({now.name, at_, until, now.in_pass ? 1 : 0, now.vrank});
    at_ = until;
  }

  std::vector<double>& kinds_;
  std::vector<Open> open_;
  double at_ = 0;
};

bool is_whole_pass(const StepSpan& span) { return span.depth == 0 && is_pass(span_kind_of(span.name)); }

// Joins neighbours that are alike, or too short to be told apart, which are then taken for the longest of them. Leaves
// out what is alone and too short to be seen. Whole passes stay as they are.
std::vector<StepSpan> visible(const std::vector<StepSpan>& fine, double grain) {
  std::vector<StepSpan> joined;
  struct Newest {
    std::optional<size_t> at = {};
    double longest = 0;
  } newest[2];  // of each depth
  for (const StepSpan& span : fine) {
    auto& [at, longest] = newest[span.depth];
    const double length = span.end - span.begin;
    if (at && !is_whole_pass(span) && !is_whole_pass(joined[*at]) && span.begin - joined[*at].end < grain) {
      StepSpan& last = joined[*at];
      const bool alike = last.name == span.name && last.vrank == span.vrank;
      if (alike || span.end - last.begin <= grain) {
        if (length > longest) last.name = span.name, last.vrank = span.vrank;
        longest = std::max(longest, length);
        last.end = span.end;
        continue;
      }
    }
    at = joined.size();
    longest = length;
    joined.push_back(span);
    if (is_whole_pass(span)) newest[1].at.reset();
  }
  std::erase_if(joined, [&](const StepSpan& s) { return !is_whole_pass(s) && s.end - s.begin < grain / 2; });
  return joined;
}

using Workers = std::map<int, WorkerStep>;

// The steps of a trace that its workers have seen, in seconds.
std::map<int64_t, Workers> steps_of(const Ordered& trace) {
  std::map<int, int> loops;  // the thread that computes, by worker
  for (const Ordered& event : trace.at("traceEvents"))
    if (event.at("ph") == "M" && event.at("name") == "thread_name" && event.at("args").at("name") == "loop")
      loops[event.at("pid").get<int>()] = event.at("tid").get<int>();
  std::map<int, std::vector<LoopActivity>> activities;
  std::map<int64_t, Workers> steps;
  for (const Ordered& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int worker = event.at("pid");
    const auto loop = loops.find(worker);
    if (loop == loops.end() || event.at("tid") != loop->second) continue;
    const std::string category = event.at("cat");
    const double begin = event.at("ts").get<double>() / 1e6, end = begin + event.at("dur").get<double>() / 1e6;
    const Ordered args = event.value("args", Ordered::object());
    if (category == "step") steps[args.at("step").get<int64_t>()][worker] = {begin, end};  // the last attempt
    else if (category != "op")
      activities[worker].push_back({event.at("name").get<std::string>(), begin, end, args.value("vrank", -1)});
  }
  for (auto& [number, workers] : steps)
    for (auto& [worker, step] : workers)
      for (const LoopActivity& a : activities[worker])
        if (a.begin >= step.begin && a.begin < step.end) step.activities.push_back(a);
  return steps;
}

double length_of(const Workers& workers) {
  double longest = 0;
  for (const auto& [worker, step] : workers) longest = std::max(longest, step.end - step.begin);
  return longest;
}

// The step of median length, among those that most workers have seen.
const std::pair<const int64_t, Workers>& median_step(const std::map<int64_t, Workers>& steps) {
  size_t most = 0;
  for (const auto& [number, workers] : steps) most = std::max(most, workers.size());
  std::vector<const std::pair<const int64_t, Workers>*> whole;
  for (const auto& step : steps)
    if (step.second.size() == most) whole.push_back(&step);
  const auto middle = whole.begin() + static_cast<std::ptrdiff_t>((whole.size() - 1) / 2);
  std::nth_element(whole.begin(), middle, whole.end(),
                   [](const auto* a, const auto* b) { return length_of(a->second) < length_of(b->second); });
  return **middle;
}

// The workers in the order of their places.
std::vector<int> order_of(const Workers& workers, const Generation* generation) {
  std::vector<int> order;
  if (generation != nullptr)
    for (const GenerationMember& m : generation->members)
      if (workers.contains(m.id)) order.push_back(m.id);
  for (const auto& [worker, step] : workers)
    if (std::ranges::find(order, worker) == order.end()) order.push_back(worker);
  return order;
}

// Names of spans as numbers.
class SpanNames {
 public:
  size_t operator[](std::string_view name) {
    const auto [found, fresh] = numbers_.try_emplace(name, numbers_.size());
    if (fresh) json.push_back({{"name", name}, {"kind", kSpanKinds[static_cast<size_t>(span_kind_of(name))]}});
    return found->second;
  }
  Ordered json = Ordered::array();

 private:
  std::map<std::string_view, size_t> numbers_;
};

Ordered bubbles_of(const std::vector<PipelineBubble>& bubbles) {
  Ordered json = Ordered::array();
  const auto told = [](const std::optional<double>& part) { return part ? rounded(*part) : Ordered(nullptr); };
  for (const PipelineBubble& b : bubbles)
    if (json.size() < kMostBubbles)
      json.push_back({{"replica", b.replica},
                      {"measured", rounded(b.measured)},
                      {"predicted", told(b.predicted)},
                      {"scheduled", told(b.scheduled)}});
  return json;
}

}  // namespace

Ordered profiled_step(const Ordered& trace, const ReportedSegments& segments,
                      const std::function<const Generation*(int64_t step)>& generation_of) {
  const std::map<int64_t, Workers> steps = steps_of(trace);
  if (steps.empty()) return nullptr;
  const auto& [number, workers] = median_step(steps);
  const Generation* const generation = generation_of(number);
  double begin = workers.begin()->second.begin, end = workers.begin()->second.end, all = 0;
  for (const auto& [worker, step] : workers) {
    begin = std::min(begin, step.begin);
    end = std::max(end, step.end);
    all += step.end - step.begin;
  }
  std::vector<double> kinds(std::size(kSpanKinds));
  std::map<int, std::vector<StepSpan>> spans;
  std::map<int, std::vector<PassSpan>> passes;
  for (const auto& [worker, step] : workers) {
    StepDivision division(step, kinds);
    spans[worker] = std::move(division.spans);
    passes[worker] = std::move(division.passes);
  }

  std::vector<int> shown = order_of(workers, generation);
  shown.resize(std::min(shown.size(), kMostStepRows));
  std::map<int, size_t> counts;
  const auto count = [&](double grain) {
    size_t sum = 0;
    for (const int worker : shown) sum += counts[worker] = visible(spans[worker], grain).size();
    return sum;
  };
  double grain = (end - begin) / kStepColumns;
  size_t sum = count(grain);
  for (; sum > kMostStepSpans && grain < end - begin; sum = count(grain)) grain *= 2;
  for (; sum > kMostStepSpans && shown.size() > 1; shown.pop_back()) sum -= counts[shown.back()];  // of passes alone

  SpanNames names;
  Ordered rows = Ordered::array();
  for (const int worker : shown) {
    const int index = generation != nullptr ? generation->index_of_id(worker) : -1;
    const ReplicaPlace* const place =
        index >= 0 && generation->shards > 0 ? &generation->members[static_cast<size_t>(index)].place : nullptr;
    Ordered row = {{"worker", worker},
                   {"replica", place != nullptr ? Ordered(place->replica) : Ordered(nullptr)},
                   {"stage", place != nullptr && !place->segments.empty() ? Ordered(place->stage) : Ordered(nullptr)},
                   {"spans", Ordered::array()}};
    for (const StepSpan& s : visible(spans[worker], grain))
      row["spans"].push_back({names[s.name], rounded(s.begin - begin), rounded(s.end - begin), s.depth, s.vrank});
    rows.push_back(std::move(row));
  }
  Ordered parts = Ordered::object();
  for (size_t k = 0; k < kinds.size(); ++k) parts[kSpanKinds[k]] = rounded(all > 0 ? kinds[k] / all : 0);
  const std::vector<PipelineBubble> bubbles =
      generation != nullptr ? pipeline_bubbles(*generation, segments.seconds, passes) : std::vector<PipelineBubble>();
  return {{"step", number},
          {"generation", generation != nullptr ? Ordered(generation->number) : Ordered(nullptr)},
          {"seconds", rounded(end - begin)},
          {"kinds", parts},
          {"names", names.json},
          {"rows", rows},
          {"rows_left_out", workers.size() - shown.size()},
          {"bubbles", bubbles_of(bubbles)},
          {"bubbles_left_out", bubbles.size() - std::min(bubbles.size(), kMostBubbles)}};
}

}  // namespace elinvar
