#include "tensor/cuda/libraries.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>

#include "tensor/base/check.h"
#include "tensor/device_description.h"
#include "tensor/precision.h"

namespace elinvar {
namespace {

const CublasLt& any_cublas_lt() {
  static const CublasLt library;
  return library;
}
const Cudnn& any_cudnn() {
  static const Cudnn library;
  return library;
}

// The compiler that cuDNN uses for some of its engines. Without it cuDNN takes other engines, whose bits may differ. It
// is loaded here, so that cuDNN finds the same one.
struct Nvrtc : SharedLibrary {
  Nvrtc() : SharedLibrary("NVRTC", "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000)) {
    find(version, "nvrtcVersion");
  }
  int (*version)(int* major, int* minor);
};

std::string version_of_nvrtc() {
  static const Nvrtc library;
  int major = 0, minor = 0;
  if (!library.missing().empty() || library.version(&major, &minor) != 0) return "no NVRTC";
  return fmt::format("NVRTC {}.{}", major, minor);
}

template <class Library>
const Library& whole(const Library& library) {
  if (!library.missing().empty()) fail("[cuda] {}", library.missing());
  return library;
}

}  // namespace

SharedLibrary::SharedLibrary(const char* name, const std::string& soname) : name_(name) {
  handle_ = dlopen(soname.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_) return;
  missing_ = fmt::format("{} cannot be loaded: {}", name, dlerror());
  handle_ = dlopen((ELINVAR_CUDA_LIBRARIES "/" + soname).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_) missing_.clear();
}

void* SharedLibrary::symbol(const char* name) {
  void* const found = handle_ ? dlsym(handle_, name) : nullptr;
  if (!found && missing_.empty()) missing_ = fmt::format("{} has no {}: a newer one is needed", name_, name);
  return found;
}

CublasLt::CublasLt() : SharedLibrary("cuBLASLt", "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR)) {
  find(version, "cublasLtGetVersion");
  find(status_string, "cublasLtGetStatusString");
  find(create, "cublasLtCreate");
  find(matmul_desc_create, "cublasLtMatmulDescCreate");
  find(matmul_desc_destroy, "cublasLtMatmulDescDestroy");
  find(matmul_desc_set, "cublasLtMatmulDescSetAttribute");
  find(layout_create, "cublasLtMatrixLayoutCreate");
  find(layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(layout_set, "cublasLtMatrixLayoutSetAttribute");
  find(preference_create, "cublasLtMatmulPreferenceCreate");
  find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(matmul, "cublasLtMatmul");
}

Cudnn::Cudnn() : SharedLibrary("cuDNN", "libcudnn.so." + std::to_string(CUDNN_MAJOR)) {
  find(version, "cudnnGetVersion");
  find(status_string, "cudnnGetErrorString");
  find(create, "cudnnCreate");
  find(set_stream, "cudnnSetStream");
  find(descriptor_create, "cudnnBackendCreateDescriptor");
  find(descriptor_destroy, "cudnnBackendDestroyDescriptor");
  find(set, "cudnnBackendSetAttribute");
  find(get, "cudnnBackendGetAttribute");
  find(finalize, "cudnnBackendFinalize");
  find(execute, "cudnnBackendExecute");
}

const CublasLt& cublas_lt() { return whole(any_cublas_lt()); }
const Cudnn& cudnn() { return whole(any_cudnn()); }

FastProducts fast_products_of_cuda(int index) {
  const DeviceDescription gpu = describe({DeviceKind::cuda, static_cast<int8_t>(index)});
  if (gpu.compute.empty() || std::stoi(gpu.compute) < 8)
    return {.missing = fmt::format("{} has compute capability {}, 8.0 is the least", gpu.model, gpu.compute)};
  for (const SharedLibrary* library :
       {static_cast<const SharedLibrary*>(&any_cublas_lt()), static_cast<const SharedLibrary*>(&any_cudnn())})
    if (!library->missing().empty()) return {.missing = library->missing()};
  const char* const tf32 = std::getenv("NVIDIA_TF32_OVERRIDE");  // the libraries obey it
  return {.by = fmt::format("cuBLASLt {}, cuDNN {}, {}{}", any_cublas_lt().version(), any_cudnn().version(),
                            version_of_nvrtc(), tf32 ? fmt::format(", NVIDIA_TF32_OVERRIDE={}", tf32) : "")};
}

}  // namespace elinvar
