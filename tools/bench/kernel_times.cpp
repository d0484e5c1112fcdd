#include "tools/bench/kernel_times.h"

#include <algorithm>

#include "tensor/base/check.h"

#ifdef ELINVAR_CUPTI
#include <cuda.h>
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <type_traits>
#endif

namespace elinvar::bench {

std::string short_name(const std::string& kernel) {
  std::string name = kernel;
  for (const std::string part : {"(anonymous namespace)::", "<unnamed>::", "elinvar::"})
    for (size_t at; (at = name.find(part)) != std::string::npos;) name.erase(at, part.size());
  // The arguments begin at the first parenthesis outside angle brackets; a result type ends with the last space before.
  int depth = 0;
  size_t begin = 0, end = name.size();
  for (size_t i = 0; i < name.size() && end == name.size(); ++i) {
    depth += name[i] == '<';
    depth -= name[i] == '>';
    if (depth == 0 && name[i] == ' ') begin = i + 1;
    if (depth == 0 && name[i] == '(') end = i;
  }
  return name.substr(begin, end - begin);
}

#ifdef ELINVAR_CUPTI

namespace {

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
#else
using KernelRecord = CUpti_ActivityKernel9;
#endif

struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next = nullptr;
  decltype(&cuptiGetResultString) text = nullptr;

  Cupti() {
    const std::string soname = fmt::format("libcupti.so.{}", CUDA_VERSION / 1000);
    void* library = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL);
    for (const char* folder : {"", "/../extras/CUPTI/lib64"})
      if (!library)
        library = dlopen(fmt::format("{}{}/{}", ELINVAR_CUPTI, folder, soname).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) fail("[bench] --kernels needs CUPTI, of the CUDA toolkit: {}", dlerror());
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (!function) fail("[bench] the CUPTI found has no {}", name);
    };
    find(register_callbacks, "cuptiActivityRegisterCallbacks");
    find(enable, "cuptiActivityEnable");
    find(disable, "cuptiActivityDisable");
    find(flush, "cuptiActivityFlushAll");
    find(next, "cuptiActivityGetNextRecord");
    find(text, "cuptiGetResultString");
  }
  void require(CUptiResult result, const char* what) const {
    if (result == CUPTI_SUCCESS) return;
    const char* why = "";
    static_cast<void>(text(result, &why));
    fail("[bench] CUPTI, {}: {}", what, why);
  }
};

const Cupti& cupti() {
  static const Cupti loaded;
  return loaded;
}

constexpr CUpti_ActivityKind kWatched[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMSET};

std::mutex g_mutex;
std::map<std::string, KernelTime> g_times;  // by mangled name

void add(const std::string& name, uint64_t start, uint64_t end) {
  KernelTime& time = g_times[name];
  ++time.launches;
  time.seconds += 1e-9 * static_cast<double>(end - start);
}

void give_buffer(uint8_t** buffer, size_t* size, size_t* records) {
  *size = size_t{1} << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(ACTIVITY_RECORD_ALIGNMENT, *size));
  *records = 0;  // as many as there is room for
}

// CUPTI calls this from a thread of its own.
void take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(g_mutex);
  for (CUpti_Activity* record = nullptr; cupti().next(buffer, valid, &record) == CUPTI_SUCCESS;) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* kernel = reinterpret_cast<const KernelRecord*>(record);
      add(kernel->name, kernel->start, kernel->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      add("copy", copy->start, copy->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      add("fill", fill->start, fill->end);
    }
  }
  std::free(buffer);
}

std::string demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string whole = text ? text : name;
  std::free(text);
  return whole;
}

}  // namespace

KernelWatch::KernelWatch() {
  cupti().require(cupti().register_callbacks(give_buffer, take_buffer), "registering callbacks");
  for (const CUpti_ActivityKind kind : kWatched) cupti().require(cupti().enable(kind), "enabling records of kernels");
  static_cast<void>(take());
}

KernelWatch::~KernelWatch() {
  for (const CUpti_ActivityKind kind : kWatched) static_cast<void>(cupti().disable(kind));
}

std::vector<KernelTime> KernelWatch::take() {
  cupti().require(cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "taking records of kernels");
  const std::lock_guard lock(g_mutex);
  std::map<std::string, KernelTime> by_name;
  for (const auto& [name, time] : g_times) {
    KernelTime& sum = by_name[short_name(demangled(name))];
    sum.launches += time.launches;
    sum.seconds += time.seconds;
  }
  g_times.clear();
  std::vector<KernelTime> times;
  for (auto& [name, time] : by_name) times.push_back({name, time.launches, time.seconds});
  std::ranges::sort(times, std::greater(), &KernelTime::seconds);
  return times;
}

#else

KernelWatch::KernelWatch() { fail("[bench] --kernels: this build has no CUPTI, a part of the CUDA toolkit"); }
KernelWatch::~KernelWatch() = default;
std::vector<KernelTime> KernelWatch::take() { return {}; }

#endif

}  // namespace elinvar::bench
