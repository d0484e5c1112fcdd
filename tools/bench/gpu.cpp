#include "tools/bench/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/device_description.h"
#include "tools/peak/timing.h"

#ifdef ELINVAR_CUDA
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#endif

namespace elinvar::bench {

#ifdef ELINVAR_CUDA

namespace {

double attribute(Device device, cudaDeviceAttr which) {
  int value = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&value, which, device.index);
  if (error != cudaSuccess) fail("[bench] the GPU does not say what it is: {}", cudaGetErrorString(error));
  return value;
}

// Float32 multiply-adds per multiprocessor and clock (CUDA C++ programming guide, arithmetic instructions).
double lanes_of(Device device) {
  const int major = static_cast<int>(attribute(device, cudaDevAttrComputeCapabilityMajor)),
            minor = static_cast<int>(attribute(device, cudaDevAttrComputeCapabilityMinor));
  return major < 8 || (major == 8 && minor == 0) ? 64 : 128;
}

// The cuBLAS functions to time, from the first library found.
struct Cublas {
  decltype(&cublasSgemm_v2) sgemm = nullptr;
  cublasHandle_t handle = nullptr;

  explicit Cublas(void* stream) {
    void* library = nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
      if (!library) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    const auto create = reinterpret_cast<decltype(&cublasCreate_v2)>(dlsym(library, "cublasCreate_v2"));
    const auto on_stream = reinterpret_cast<decltype(&cublasSetStream_v2)>(dlsym(library, "cublasSetStream_v2"));
    sgemm = reinterpret_cast<decltype(sgemm)>(dlsym(library, "cublasSgemm_v2"));
    if (!create || !on_stream || !sgemm || create(&handle) != CUBLAS_STATUS_SUCCESS ||
        on_stream(handle, static_cast<cudaStream_t>(stream)) != CUBLAS_STATUS_SUCCESS)
      fail("[bench] the cuBLAS that is installed does not start");
  }
};

}  // namespace

Peak gpu_peak(Device device) {
  const double clock = attribute(device, cudaDevAttrClockRate) * 1e3;
  const double memory = attribute(device, cudaDevAttrMemoryClockRate) * 1e3;
  return {.gflops = 2.0 * lanes_of(device) * attribute(device, cudaDevAttrMultiProcessorCount) * clock / 1e9,
          .gb_per_s = 2.0 * memory * attribute(device, cudaDevAttrGlobalMemoryBusWidth) / 8.0 / 1e9};
}

std::string gpu_title(Device device) {
  const DeviceDescription description = describe(device);
  return fmt::format("{}, {:.0f} multiprocessors, driver {}", description.model,
                     attribute(device, cudaDevAttrMultiProcessorCount), description.driver);
}

double gpu_seconds(Device device, int repeat, const std::function<void()>& f) {
  CudaStream& stream = gpu_stream<Cuda>(device.index);
  const auto seconds_of_runs = [&](int runs) {
    stream.synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < runs; ++i) f();
    stream.synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / runs;
  };
  seconds_of_runs(3);
  const int runs = std::clamp(static_cast<int>(0.02 / seconds_of_runs(3)), 3, 2000);
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) times.push_back(seconds_of_runs(runs));
  return median(std::move(times));
}

double cublas_seconds(Device device, int repeat, int64_t m, int64_t n, int64_t k) {
  CudaStream& stream = gpu_stream<Cuda>(device.index);
  static const Cublas cublas(stream.handle());
  if (!cublas.handle) return 0.0;
  const auto floats = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(static_cast<int>(i % 101) - 50);
    std::shared_ptr<void> block = stream.allocate(values.size() * sizeof(float));
    stream.copy_in(block.get(), values.data(), values.size() * sizeof(float));
    return block;
  };
  const std::shared_ptr<void> a = floats(m * k), b = floats(k * n), c = floats(m * n);
  const float one = 1.0f, zero = 0.0f;
  return gpu_seconds(device, repeat, [&] {  // cuBLAS is column-major, so compute C^T = B^T A^T
    const cublasStatus_t status = cublas.sgemm(
        cublas.handle, CUBLAS_OP_N, CUBLAS_OP_N, static_cast<int>(n), static_cast<int>(m), static_cast<int>(k), &one,
        static_cast<const float*>(b.get()), static_cast<int>(n), static_cast<const float*>(a.get()),
        static_cast<int>(k), &zero, static_cast<float*>(c.get()), static_cast<int>(n));
    if (status != CUBLAS_STATUS_SUCCESS) fail("[bench] cuBLAS refused a product: status {}", static_cast<int>(status));
  });
}

#else

Peak gpu_peak(Device device) { refuse(device); }
std::string gpu_title(Device device) { refuse(device); }
double gpu_seconds(Device device, int, const std::function<void()>&) { refuse(device); }
double cublas_seconds(Device device, int, int64_t, int64_t, int64_t) { refuse(device); }

#endif

}  // namespace elinvar::bench
