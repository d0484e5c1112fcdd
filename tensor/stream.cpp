#include "tensor/stream.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tensor/base/activity.h"
#include "tensor/base/check.h"
#include "tensor/base/threads.h"
#include "tensor/device_description.h"

namespace elinvar {
namespace {

thread_local bool inside_body = false;
thread_local CpuStream* scoped_stream = nullptr;

// NUMERICS.md, rule 6: round to nearest, subnormals kept.
void check_float_environment() {
#if defined(__x86_64__)
  constexpr unsigned kRoundingFtzDaz = 0x6000u | 0x8000u | 0x0040u;
  invariant((_mm_getcsr() & kRoundingFtzDaz) == 0,
            "this thread rounds differently or flushes subnormals: a library changed its floating-point state");
#endif
}

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Long enough to bridge the gap between two operations, short enough not to steal a core from a reader thread or from
// the very thread that it waits for.
constexpr int kSpins = 4000;

// Spins for a while, then sleeps until the value changes; returns the new value.
template <class T>
T wait_for_change(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    const T now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

// Raising `epoch` publishes a task. Each of its parts is run once, by the thread that raises its `claimed` from the
// previous task to this one: its helper or, if the helper is late because something else has its core, the caller, once
// it has finished its own part. A thread must not read the fields of a task before it has claimed a part; the next task
// is published only after that part is done and has lowered `pending`.
struct CpuStream::Team {
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Claim {
    std::atomic<uint32_t> claimed{0};
  };

  int64_t n = 0, parts = 1;
  Call call = nullptr;
  void* body = nullptr;
  const char* name = nullptr;  // for activity watchers
  std::unique_ptr<Claim[]> claims;
  alignas(64) std::atomic<uint32_t> epoch{0};
  alignas(64) std::atomic<int> pending{0};  // parts of helpers
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  std::exception_ptr error;  // the first exception of a part; written by the thread that raised `failed`
  std::mutex one_caller;
  int caller = -1;  // the processor that helpers avoid
  Clock::time_point moved{};
  std::vector<std::jthread> helpers;

  // Stops helpers before their threads are joined, also if the constructor throws halfway.
  ~Team() {
    stop = true;
    epoch.fetch_add(1, std::memory_order_release);
    epoch.notify_all();
  }

  bool claim(int64_t part, uint32_t task) {
    uint32_t before = task - 1;
    return claims[static_cast<size_t>(part)].claimed.compare_exchange_strong(before, task, std::memory_order_acq_rel);
  }

  // A system may wake a thread on the processor of the thread that wakes it and leave it there although another is
  // idle: half a team then waits for the other half. Therefore helpers may use their caller's processors except the one
  // that it runs on. A caller that moves often takes them along at most once a millisecond.
  void keep_helpers_off(int processor) {
    if (processor < 0 || processor == caller) return;
    const Clock::time_point now = Clock::now();
    cpu_set_t others;
    if (now - moved < std::chrono::milliseconds(1) || sched_getaffinity(0, sizeof others, &others) != 0) return;
    moved = now;
    CPU_CLR(processor, &others);
    if (static_cast<size_t>(CPU_COUNT(&others)) < helpers.size()) return;
    for (std::jthread& helper : helpers) pthread_setaffinity_np(helper.native_handle(), sizeof others, &others);
    caller = processor;
  }

  void run_part(int64_t part) noexcept {
    inside_body = true;
    check_float_environment();
    try {
      call(body, n * part / parts, n * (part + 1) / parts);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
    inside_body = false;
  }

  void helper(int64_t part) {
    for (uint32_t task = 0;;) {
      task = wait_for_change(epoch, task);
      if (stop.load(std::memory_order_relaxed)) return;
      if (!claim(part, task)) continue;
      {
        const Activity activity(name);
        run_part(part);
      }
      if (pending.fetch_sub(1, std::memory_order_acq_rel) == 1) pending.notify_one();
    }
  }
};

CpuStream::CpuStream(int threads) : team_(std::make_unique<Team>()) {
  check(threads >= 1 && threads <= 1024, "a CPU stream needs 1 to 1024 threads, got {}", threads);
  team_->claims = std::make_unique<Team::Claim[]>(static_cast<size_t>(threads));
  for (int i = 1; i < threads; ++i)
    team_->helpers.push_back(start_thread("team", [team = team_.get(), i] { team->helper(i); }));
}

CpuStream::~CpuStream() = default;

int CpuStream::threads() const { return static_cast<int>(team_->helpers.size()) + 1; }

void CpuStream::run(int64_t n, int64_t grain, Call call, void* body) {
  Team& team = *team_;
  const int64_t most = std::max<int64_t>(1, n / std::max<int64_t>(1, grain));
  const int64_t parts = std::min<int64_t>(threads(), most);
  if (parts == 1 || inside_body) {
    check_float_environment();
    call(body, 0, n);
    return;
  }
  std::lock_guard lock(team.one_caller);
  team.n = n;
  team.parts = parts;
  team.keep_helpers_off(sched_getcpu());
  team.call = call;
  team.body = body;
  team.name = activity::task;
  team.pending.store(static_cast<int>(parts - 1), std::memory_order_relaxed);
  const uint32_t task = team.epoch.load(std::memory_order_relaxed) + 1;
  for (int64_t part = parts; part < threads(); ++part)  // no work for these
    team.claims[static_cast<size_t>(part)].claimed.store(task, std::memory_order_relaxed);
  team.epoch.store(task, std::memory_order_release);
  team.epoch.notify_all();
  team.run_part(0);
  for (int64_t part = 1; part < parts; ++part) {
    if (!team.claim(part, task)) continue;
    team.run_part(part);
    team.pending.fetch_sub(1, std::memory_order_relaxed);
  }
  for (int left = team.pending.load(std::memory_order_acquire); left != 0;) left = wait_for_change(team.pending, left);
  if (team.failed.exchange(false)) std::rethrow_exception(std::exchange(team.error, nullptr));
}

namespace {
// `first` is the number of threads at the first call; 0 for as many as may be used.
std::unique_ptr<CpuStream>& process_stream(int first = 0) {
  static auto stream = std::make_unique<CpuStream>(first > 0 ? first : usable_threads());
  return stream;
}

// "1" in "cuda:1"; "0" where there is no number.
std::string number_in(const std::string& device) { return device.starts_with("cuda:") ? device.substr(5) : "0"; }

}  // namespace

CpuStream& cpu_stream() { return scoped_stream ? *scoped_stream : *process_stream(); }
void set_threads(int threads) {
  std::unique_ptr<CpuStream>& stream = process_stream(threads);
  if (stream->threads() != threads) stream = std::make_unique<CpuStream>(threads);
}

StreamScope::StreamScope(CpuStream& stream) : previous_(scoped_stream) { scoped_stream = &stream; }
StreamScope::~StreamScope() { scoped_stream = previous_; }

const char* name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu:
      return "cpu";
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::emulated:
      return "emulated";
  }
  return "?";
}

std::string to_string(Device device) {
  if (device.kind == DeviceKind::cpu) return "cpu";
  return fmt::format("{}:{}", name_of(device.kind), device.index);
}

void check_device_name(const std::string& text) {
  if (text == "cpu" || (text == "emulated" && gpu_count<Emulated>() > 0)) return;
  const std::string number = number_in(text);
  const bool known = text == "auto" || text == "cuda" || text.starts_with("cuda:");
  check(known && !number.empty() && number.size() <= 2 && number.find_first_not_of("0123456789") == std::string::npos,
        "--device: auto, cpu, cuda or cuda:NUMBER expected, got '{}'", text);
}

Device parse_device(const std::string& text) {
  const int gpus = gpu_count<Cuda>();
  check_device_name(text);
  if (text == "cpu" || (text == "auto" && gpus == 0)) return {};
  if (text == "emulated") return {DeviceKind::emulated};
  check(gpus > 0, "--device {}: no GPU was found ({}); leave the option out to use the CPU", text, why_no_gpu());
  const int index = std::stoi(number_in(text));
  check(index < gpus, "--device {}: this machine has {} GPU{}, counted from 0", text, gpus, gpus == 1 ? "" : "s");
  return {DeviceKind::cuda, static_cast<int8_t>(index)};
}

void refuse(Device device) {
  check(false, "[device] this build has no {} devices", name_of(device.kind));
  std::abort();
}

}  // namespace elinvar
