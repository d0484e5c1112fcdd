#pragma once
// A stream is where an operation runs. The *type* of the stream names the device, so overload resolution picks the
// kernel: each op has a body for CpuStream and a twin for GpuStream, which is compiled for CUDA where a toolkit is
// found.
//
// A CpuStream is a fixed team of threads. An operation splits its index range over them; results never depend on the
// split (NUMERICS.md), so the number of threads affects speed only.
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "tensor/gpu_stream.h"

namespace elinvar {

class CpuStream {
 public:
  explicit CpuStream(int threads);  // the calling thread counts as one of them
  ~CpuStream();
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;

  int threads() const;

  // Calls body(begin, end) on disjoint intervals that cover [0, n), one per thread, each of at least `grain` items;
  // returns when all are done. For equal ranges, interval i goes to the same thread, or to the caller if that thread is
  // late. Throws the first exception of a body after all are done. A call from inside one of several intervals runs on
  // its thread alone. Several threads may share a stream; their calls run one after another.
  template <class F>
  void parallel_for(int64_t n, int64_t grain, F&& body) {
    if (n <= 0) return;
    using Body = std::remove_reference_t<F>;
    run(
        n, grain, [](void* f, int64_t begin, int64_t end) { (*static_cast<Body*>(f))(begin, end); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* body, int64_t begin, int64_t end);
  void run(int64_t n, int64_t grain, Call call, void* body);
  struct Team;
  std::unique_ptr<Team> team_;
};

// The stream that tensors on the CPU use in this thread: the process's, unless a StreamScope has replaced it.
CpuStream& cpu_stream();

// Number of threads of the process's stream; call it while no kernel runs.
void set_threads(int threads);

// Makes `stream` the CPU stream of the calling thread while in scope, for example one of a single thread for a
// worker that must not take part in the team.
class StreamScope {
 public:
  explicit StreamScope(CpuStream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  CpuStream* previous_;
};

enum class DeviceKind : uint8_t { cpu, cuda, emulated };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};

const char* name_of(DeviceKind kind);
std::string to_string(Device device);  // "cpu", "cuda:0"
// "auto" (the first GPU, else the CPU), "cpu", "cuda" or "cuda:1"; in builds with tests also "emulated"
// (tests/emulation). Throws UsageError for other words, and for a device that is not there.
Device parse_device(const std::string& text);
[[noreturn]] void refuse(Device device);  // UsageError: this build has no such devices

// Calls f with the current stream of the device; f is a generic lambda whose body is an op's overload set.
template <class F>
decltype(auto) on(Device device, F&& f) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return f(cpu_stream());
    case DeviceKind::cuda:
      return f(gpu_stream<Cuda>(device.index));
    case DeviceKind::emulated:
      return f(gpu_stream<Emulated>(device.index));
  }
  refuse(device);
}

// The same for GPUs alone: nothing is called for the CPU.
template <class F>
void on_gpu(Device device, F&& f) {
  on(device, [&](auto& stream) {
    if constexpr (!std::is_same_v<decltype(stream), CpuStream&>) f(stream);
  });
}

}  // namespace elinvar
