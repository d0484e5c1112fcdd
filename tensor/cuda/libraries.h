#pragma once
// cuBLASLt and cuDNN, loaded on first use, so that programs run where they are not installed. They are searched for in
// the system's library path, then in the toolkit of the build.
#include <cublasLt.h>
#include <cudnn.h>

#include <string>

namespace elinvar {

class SharedLibrary {
 public:
  SharedLibrary(const char* name, const std::string& soname);
  // "" if everything was found.
  const std::string& missing() const { return missing_; }

 protected:
  // Sets `function` to the library's function of that name.
  template <class F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(symbol(name));
  }

 private:
  void* symbol(const char* name);
  void* handle_ = nullptr;
  std::string name_, missing_;
};

// Members have the functions' own names, without the library's prefix.
struct CublasLt : SharedLibrary {
  CublasLt();
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create;
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) matmul;
};

struct Cudnn : SharedLibrary {
  Cudnn();
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) status_string;
  decltype(&cudnnCreate) create;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) descriptor_create;
  decltype(&cudnnBackendDestroyDescriptor) descriptor_destroy;
  decltype(&cudnnBackendSetAttribute) set;
  decltype(&cudnnBackendGetAttribute) get;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

// Loaded by the first call; throws Failure that says what is missing.
const CublasLt& cublas_lt();
const Cudnn& cudnn();

}  // namespace elinvar
