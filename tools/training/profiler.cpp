#include "tools/training/profiler.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "tensor/base/check.h"
#include "tensor/isa.h"
#include "tensor/profiler_range.h"
#include "tools/peak/peak.h"

namespace elinvar {
namespace {

using Clock = std::chrono::steady_clock;
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kSkipped = 9, kWatched = 5;  // the default number of steps before the window, and in it
constexpr int kLoop = 1;                       // the row of the thread that computes

int64_t number_in(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc{} && end == text.data() + text.size() ? n : 0;
}

double microseconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1000; }

// Aligns the steps of several workers by their machines' wall clocks.
int64_t unix_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string shapes_of(const TraceValues& values) {
  std::string text;
  for (const TraceValue& v : values)
    if (v.kind != TraceValue::Kind::number && v.tensor.defined())
      text += (text.empty() ? "" : ", ") + v.name + " " + to_string(v.tensor.shape());
  return text;
}

void wait_for(Device device) {
  if (device == Device{}) return;
  on(device, [](auto& stream) {
    if constexpr (requires { stream.synchronize(); }) stream.synchronize();
  });
}

OrderedJson name_event(const char* what, int pid, int tid, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}};
}

}  // namespace

std::string ProfileWindow::text() const { return fmt::format("{}-{}", first, last); }

ProfileWindow parse_profile_window(std::string_view text, int64_t made) {
  if (text == "auto") return {made + kSkipped + 1, made + kSkipped + kWatched};
  const size_t dash = text.find('-');
  const ProfileWindow window{number_in(text.substr(0, dash)),
                             number_in(dash == std::string_view::npos ? text : text.substr(dash + 1))};
  check(window.first >= 1 && window.last >= window.first, "--profile: steps expected, as 100-104 or 7, got '{}'", text);
  return window;
}

ProfileWindow within(ProfileWindow window, int64_t steps) {
  const int64_t excess = std::max<int64_t>(0, window.last - steps);
  return {std::max<int64_t>(1, window.first - excess), window.last - excess};
}

Profiler::Profiler(ProfileWindow window, Device device, std::function<void(const OrderedJson& trace, int worker)> save)
    : window_(window), device_(device), save_(std::move(save)) {}

Profiler::~Profiler() { stop_watching(); }

void Profiler::step(int64_t made, int worker) {
  worker_ = worker;
  const int64_t step = made + 1;
  if (step < window_.first || closes(made)) return finish();
  if (step > window_.last || !save_) return;  // the window is over, and the job has gone back to an earlier step
  if (recording_) end_step();
  else begin_watching();
  step_ = step;
  step_began_ = Clock::now();
}

bool Profiler::closes(int64_t made) const {
  if (!recording_) return false;
  const std::lock_guard lock(mutex_);
  return made + 1 > window_.last || events_.size() > kMostEvents / 2;
}

void Profiler::finish() {
  if (!recording_) return;
  end_step();
  stop_watching();
  const TimedActivity activity("the profile");  // the peak measurement and the file take a while
  std::exchange(save_, nullptr)(trace(), worker_);
}

void Profiler::begin_watching() {
  began_ = Clock::now();
  began_unix_ns_ = unix_ns();
  {
    const std::lock_guard lock(mutex_);
    open_ = true;
    threads_[std::this_thread::get_id()] = {kLoop, "loop"};
  }
  recording_.emplace(*this);
  activity::watcher.store(this, std::memory_order_release);
}

void Profiler::stop_watching() {
  if (!recording_) return;
  activity::watcher.store(nullptr, std::memory_order_release);
  recording_.reset();
  activity::task = "task";
  const std::lock_guard lock(mutex_);
  open_ = false;
}

void Profiler::end_step() {
  add({.name = "step",
       .category = "step",
       .thread = kLoop,
       .began = step_began_,
       .ended = Clock::now(),
       .step = step_});
}

void Profiler::begins(const AnyOp& op, const TraceValues& arguments) {
  const std::string shapes = shapes_of(arguments);
  {
    const std::lock_guard lock(mutex_);
    op_shapes_ = &*texts_.insert(shapes).first;
  }
  op_ = &op;
  activity::task = op.name().c_str();
  push_range(op.name().c_str());
  op_began_ = Clock::now();
}

void Profiler::ends(const TraceValues&, const OpWork& work) {
  wait_for(device_);
  const Time now = Clock::now();
  pop_range();
  activity::task = "task";
  add({.name = op_->name().c_str(),
       .category = "op",
       .thread = kLoop,
       .began = op_began_,
       .ended = now,
       .work = work,
       .shapes = op_shapes_});
}

void Profiler::begins(const char* what) { push_range(what); }

void Profiler::ends(const char* what, Time began, int vrank) {
  const Time now = Clock::now();
  pop_range();
  const bool waits = std::strncmp(what, "waiting", 7) == 0;
  add({.name = what,
       .category = waits ? "wait" : "activity",
       .thread = 0,
       .began = began,
       .ended = now,
       .vrank = vrank});
}

void Profiler::add(Event event) {
  const std::lock_guard lock(mutex_);
  if (!open_) return;
  if (events_.size() == kMostEvents) {
    ++lost_;
    return;
  }
  if (event.thread == 0) event.thread = row_of_this_thread();
  events_.push_back(event);
}

int Profiler::row_of_this_thread() {
  const auto [found, fresh] = threads_.try_emplace(std::this_thread::get_id());
  if (fresh) {
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    found->second = {static_cast<int>(threads_.size()), name};
  }
  return found->second.row;
}

OrderedJson Profiler::trace() const {
  const double peak = device_ == Device{} ? bench::measure_registers() : 0.0;
  const std::lock_guard lock(mutex_);
  OrderedJson events = OrderedJson::array();
  char host[256] = "";
  static_cast<void>(gethostname(host, sizeof host - 1));
  events.push_back(name_event("process_name", worker_, kLoop, fmt::format("worker {} on {}", worker_, host)));
  for (const auto& [id, thread] : threads_)
    events.push_back(name_event("thread_name", worker_, thread.row, thread.name));

  // Cuts off what began before the first step. If two events begin together, the longer one is the outer.
  std::vector<const Event*> order;
  for (const Event& event : events_)
    if (event.began >= began_) order.push_back(&event);
  std::sort(order.begin(), order.end(), [](const Event* a, const Event* b) {
    return a->began != b->began ? a->began < b->began : a->ended > b->ended;
  });
  for (const Event* event : order) {
    OrderedJson json = {{"name", event->name},
                        {"cat", event->category},
                        {"ph", "X"},
                        {"ts", microseconds(event->began - began_)},
                        {"dur", microseconds(event->ended - event->began)},
                        {"pid", worker_},
                        {"tid", event->thread}};
    if (event->step > 0) json["args"] = {{"step", event->step}};
    if (event->vrank >= 0) json["args"] = {{"vrank", event->vrank}};
    if (event->shapes) json["args"] = {{"shapes", *event->shapes}};
    if (event->work.flop > 0) json["args"]["gflop"] = event->work.flop / 1e9;
    if (event->work.bytes > 0) json["args"]["mbyte"] = event->work.bytes / 1e6;
    events.push_back(std::move(json));
  }
  return {{"displayTimeUnit", "ms"},
          {"otherData",
           {{"workers", OrderedJson::array({{{"worker", worker_},
                                             {"host", host},
                                             {"device", to_string(device_)},
                                             {"threads", cpu_stream().threads()},
                                             {"isa", name_of(current_isa())},
                                             {"peak_gflop_per_s", peak},
                                             {"began_unix_ns", began_unix_ns_},
                                             {"events_left_out", lost_}}})}}},
          {"traceEvents", std::move(events)}};
}

}  // namespace elinvar
