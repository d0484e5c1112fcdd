#include "tests/emulation/scheduler.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace elinvar::emulation {

struct Scheduler::Entry {
  uint64_t number = 0;  // in the order of the calls; of a node, its index in the graph
  int device = 0;
  Work work = {};  // may be empty
  std::vector<Point> after = {};
  bool done = false;
  Event records = {};  // the event that this node of a graph records; may be null
};

struct Scheduler::Capture {
  std::vector<Point> nodes;
  std::vector<Stream*> streams;  // those that are recorded
};

namespace {

[[noreturn]] void refuse(const char* what) { throw std::logic_error(what); }

// Calls f(entry) for the points and everything before them that is not done.
template <class Point, class F>
void each_needed(std::vector<Point> points, F f) {
  std::unordered_set<const void*> seen;
  while (!points.empty()) {
    const Point point = std::move(points.back());
    points.pop_back();
    if (point == nullptr || point->done || !seen.insert(point.get()).second) continue;
    points.insert(points.end(), point->after.begin(), point->after.end());
    f(point);
  }
}

}  // namespace

Schedule Schedule::parse(const std::string& text) {
  if (text == "eager") return {.kind = Kind::eager};
  if (text.empty() || text == "late") return {.kind = Kind::late};
  if (text.find_first_not_of("0123456789") != std::string::npos)
    throw std::invalid_argument("ELINVAR_SCHEDULE=" + text + ": eager, late or a seed expected");
  return {.kind = Kind::random, .seed = std::stoull(text)};
}

Scheduler& Scheduler::instance() {
  static auto* all = [] {
    const char* const text = std::getenv("ELINVAR_SCHEDULE");
    return new Scheduler(Schedule::parse(text == nullptr ? "" : text));
  }();
  return *all;
}

void Scheduler::finish() {
  std::vector<Point> all;
  {
    const std::lock_guard lock(state_);
    for (const auto& [number, point] : pending_) all.push_back(point);
  }
  run(std::move(all));
}

void Scheduler::use(const Schedule& schedule) {
  const std::lock_guard lock(state_);
  schedule_ = schedule;
  random_.seed(schedule.seed);
}

Scheduler::Point Scheduler::add(Stream& stream, Work work, std::vector<Point> after) {
  std::erase_if(after, [](const Point& before) { return before == nullptr || before->done; });
  stream.last = std::make_shared<Entry>(
      Entry{.number = next_++, .device = stream.device, .work = std::move(work), .after = std::move(after)});
  return pending_[stream.last->number] = stream.last;
}

void Scheduler::add_node(Stream& stream, Work work, std::vector<Point> after) {
  std::vector<Point>& nodes = stream.capture->nodes;
  std::erase(after, nullptr);
  stream.captured =
      std::make_shared<Entry>(Entry{.number = nodes.size(), .work = std::move(work), .after = std::move(after)});
  nodes.push_back(stream.captured);
}

std::vector<Scheduler::Point> Scheduler::to_run_after_queueing(const Point& point) {
  if (schedule_.kind == Schedule::Kind::eager) return {point};
  if (schedule_.kind == Schedule::Kind::random && random_() % 4 == 0) return {any_pending()};
  return {};
}

void Scheduler::queue(Stream& stream, Work work) {
  std::vector<Point> now;
  {
    const std::lock_guard lock(state_);
    if (stream.capture) return add_node(stream, std::move(work), {stream.captured});
    now = to_run_after_queueing(add(stream, std::move(work), {stream.last}));
  }
  run(std::move(now));
}

void Scheduler::record(const Event& event, Stream& stream, bool external) {
  const std::lock_guard lock(state_);
  if (!external) {
    *event = {.point = stream.capture ? stream.captured : stream.last, .capture = stream.capture};
    return;
  }
  if (!stream.capture) refuse("an external event where no graph is recorded");
  add_node(stream, {}, {stream.captured});
  stream.captured->records = event;
}

void Scheduler::wait(Stream& stream, const Event& event) {
  std::unique_lock lock(state_);
  if (!event->capture) {
    if (stream.capture) refuse("a graph that waits for work that is not recorded");
    if (!event->point || event->point->done) return;
    std::vector<Point> now = to_run_after_queueing(add(stream, {}, {stream.last, event->point}));
    lock.unlock();
    return run(std::move(now));
  }
  if (event->capture->streams.empty()) refuse("a wait for an event of a graph that has been recorded");
  if (!stream.capture) join(event->capture, stream);
  if (stream.capture != event->capture) refuse("a graph that waits for another one");
  add_node(stream, {}, {stream.captured, event->point});
}

bool Scheduler::idle(const Stream& stream) {
  const std::lock_guard lock(state_);
  return !stream.last || stream.last->done;
}

bool Scheduler::done(const Event& event) {
  Point target;
  {
    const std::lock_guard lock(state_);
    if (event->capture) refuse("a question about an event of a graph");
    if (!event->point || event->point->done) return true;
    const uint64_t patience = schedule_.kind == Schedule::Kind::random ? random_() % 4 : 1;
    if (static_cast<uint64_t>(event->questions++) < patience) return false;
    target = event->point;
  }
  run({target});
  return true;
}

void Scheduler::synchronize(const Event& event) {
  Point target;
  {
    const std::lock_guard lock(state_);
    if (event->capture) refuse("the host waits for an event of a graph");
    target = event->point;
  }
  run({target});
}

void Scheduler::synchronize(Stream& stream) {
  Point target;
  {
    const std::lock_guard lock(state_);
    if (stream.capture) refuse("the host waits for a stream that is recorded");
    target = stream.last;
  }
  run({target});
}

void Scheduler::synchronize(int device) {
  std::vector<Point> targets;
  {
    const std::lock_guard lock(state_);
    if (captured_streams_[device] > 0) refuse("the host waits for a device while a stream of it is recorded");
    for (const auto& [number, point] : pending_)
      if (point->device == device) targets.push_back(point);
  }
  run(std::move(targets));
}

void Scheduler::join(const std::shared_ptr<Capture>& capture, Stream& stream) {
  stream.capture = capture;
  capture->streams.push_back(&stream);
  ++captured_streams_[stream.device];
}

void Scheduler::begin_capture(Stream& stream) {
  const std::lock_guard lock(state_);
  if (stream.capture) refuse("a stream that is recorded twice");
  join(std::make_shared<Capture>(), stream);
}

Scheduler::Graph Scheduler::end_capture(Stream& stream) {
  const std::lock_guard lock(state_);
  if (!stream.capture || stream.capture->streams.front() != &stream) refuse("the end of a graph on another stream");
  Graph graph{.nodes = stream.capture->nodes};
  size_t joined = 0;
  each_needed(std::vector<Point>{stream.captured}, [&](const Point&) { ++joined; });
  for (Stream* const recorded : std::exchange(stream.capture->streams, {})) {
    recorded->capture = nullptr;
    recorded->captured = nullptr;
    --captured_streams_[recorded->device];
  }
  if (joined < graph.nodes.size()) refuse("the end of a graph that does not wait for all of its streams");
  return graph;
}

// All nodes come before the last one, because end_capture() requires it of the last one of its stream.
void Scheduler::launch(Graph& graph, Stream& stream) {
  std::vector<Point> now;
  {
    const std::lock_guard lock(state_);
    if (stream.capture) refuse("a graph in a graph");
    const Point before = stream.last;
    std::vector<Point> entries;
    for (const Point& node : graph.nodes) {
      std::vector<Point> after;
      for (const Point& earlier : node->after) after.push_back(entries[earlier->number]);
      if (after.empty()) after = {before, graph.last_launch};
      Work work = node->work ? [node] { node->work(); } : Work{};
      entries.push_back(add(stream, std::move(work), std::move(after)));
      if (node->records) *node->records = {.point = entries.back()};
    }
    if (entries.empty()) return;
    graph.last_launch = entries.back();
    now = to_run_after_queueing(entries.back());
  }
  run(std::move(now));
}

Scheduler::Point Scheduler::any_pending() {
  if (pending_.empty()) return nullptr;
  const uint64_t first = pending_.begin()->first, last = pending_.rbegin()->first;
  return pending_.lower_bound(first + random_() % (last - first + 1))->second;
}

size_t Scheduler::choose(const std::vector<Point>& ready) {
  if (schedule_.kind == Schedule::Kind::random) return random_() % ready.size();
  const auto number = [](const Point& point) { return point->number; };
  const auto chosen = schedule_.kind == Schedule::Kind::late ? std::ranges::max_element(ready, {}, number)
                                                             : std::ranges::min_element(ready, {}, number);
  return static_cast<size_t>(chosen - ready.begin());
}

void Scheduler::run(std::vector<Point> targets) {
  if (targets.empty()) return;
  const std::lock_guard one_at_a_time(running_);
  std::unique_lock lock(state_);
  if (schedule_.kind == Schedule::Kind::random)
    while (random_() % 2 == 0) targets.push_back(any_pending());
  std::vector<Point> ready;
  std::unordered_map<const Entry*, size_t> missing;
  std::unordered_map<const Entry*, std::vector<Point>> next;
  each_needed(std::move(targets), [&](const Point& point) {
    std::erase_if(point->after, [](const Point& before) { return before->done; });
    if (point->after.empty()) ready.push_back(point);
    missing[point.get()] = point->after.size();
    for (const Point& before : point->after) next[before.get()].push_back(point);
  });
  while (!ready.empty()) {
    const size_t i = choose(ready);
    const Point point = std::exchange(ready[i], ready.back());
    ready.pop_back();
    lock.unlock();
    if (const Work work = std::exchange(point->work, {})) work();
    lock.lock();
    point->done = true;
    point->after.clear();
    pending_.erase(point->number);
    for (const Point& later : next[point.get()])
      if (--missing[later.get()] == 0) ready.push_back(later);
  }
}

}  // namespace elinvar::emulation
