// Matrix products by cuBLASLt. Its matrices are column-major, so C = A B is computed as C^T = B^T A^T.
#include <cuda_runtime.h>

#include <array>
#include <map>
#include <mutex>

#include "tensor/aligned_lines.h"
#include "tensor/base/check.h"
#include "tensor/cuda/libraries.h"
#include "tensor/fast_product.h"

namespace elinvar {
namespace {

constexpr size_t kMostWorkspace = size_t{32} << 20;
// Partial sums of a split k are added by a separate kernel, in order; adding them in place as they arrive is excluded.
constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

void require(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail("[matmul] {}: {}", what, cublas_lt().status_string(status));
}

// The largest power of two up to 256 that divides an address: which kernels fit depends on it.
uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

cudaDataType_t type_of(DType t) { return t == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

// A matrix in the library's terms: column-major, with columns `step` elements apart; or its transpose.
struct Stored {
  bool transposed;
  int64_t rows, columns, step, batch;
};
// Returns the transpose of the given matrix (rows, columns). The step between lines is meaningless if there is one
// line.
Stored transpose_of(const MatrixIn& m, int64_t rows, int64_t columns) {
  const bool by_rows = m.col == 1;
  const int64_t lines = by_rows ? rows : columns, length = by_rows ? columns : rows, step = by_rows ? m.row : m.col;
  invariant(lines <= 1 || step >= length, "lines of a factor share no elements");
  return {!by_rows, length, lines, lines <= 1 ? length : step, m.batch};
}

// Everything that decides which algorithm is taken.
using Key = std::array<int64_t, 20>;
Key key_of(const MatmulArgs& a, Precision precision, const Stored& x, const Stored& y) {
  return {static_cast<int64_t>(precision),
          a.batch,
          a.m,
          a.n,
          a.k,
          x.transposed,
          x.step,
          x.batch,
          y.transposed,
          y.step,
          y.batch,
          a.c_row,
          a.c_batch,
          a.bias != nullptr,
          alignment_of(a.b.data),
          alignment_of(a.a.data),
          alignment_of(a.c),
          a.bias ? alignment_of(a.bias) : 0,
          static_cast<int64_t>(a.dtype),
          static_cast<int64_t>(a.result)};
}

// A product of one shape, ready to run.
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const MatmulArgs& a, Precision precision, const Stored& x, const Stored& y) {
    const CublasLt& lt = cublas_lt();
    const bool tf32 = precision == Precision::tf32;
    require(lt.matmul_desc_create(&product_, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
            "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, y.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (a.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(a.result));
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, a.bias);
    }
    x_ = layout(type_of(a.dtype), x, a.batch);
    y_ = layout(type_of(a.dtype), y, a.batch);
    c_ = layout(type_of(a.result), {false, a.n, a.m, a.c_row, a.c_batch}, a.batch);

    cublasLtMatmulPreference_t preference = nullptr;
    require(lt.preference_create(&preference), "describing a choice");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      require(lt.preference_set(preference, what, &value, sizeof value), "describing a choice");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kMostWorkspace});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(a.b.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(a.a.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(a.c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(a.c));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = lt.heuristic(handle, product_, x_, y_, c_, c_, preference, 1, &found, &count);
    lt.preference_destroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0)
      fail("[matmul] cuBLASLt has no {} product of ({}, {}) and ({}, {}): {}", name_of(precision), a.m, a.k, a.k, a.n,
           lt.status_string(status));
    algorithm_ = found.algo;
    workspace_ = found.workspaceSize;
  }

  ~Plan() {
    const CublasLt& lt = cublas_lt();
    for (cublasLtMatrixLayout_t layout : {x_, y_, c_})
      if (layout) lt.layout_destroy(layout);
    if (product_) lt.matmul_desc_destroy(product_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void run(cublasLtHandle_t handle, CudaStream& stream, const MatmulArgs& a) {
    if (a.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, a.bias);
    const std::shared_ptr<void> workspace = workspace_ > 0 ? stream.allocate(workspace_) : nullptr;
    const float one = 1.0f, zero = 0.0f;
    require(cublas_lt().matmul(handle, product_, &one, a.b.data, x_, a.a.data, y_, &zero, a.c, c_, a.c, c_, &algorithm_,
                               workspace.get(), workspace_, static_cast<cudaStream_t>(stream.handle())),
            "multiplying");
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t what, const T& value) {
    require(cublas_lt().matmul_desc_set(product_, what, &value, sizeof value), "describing a product");
  }
  static cublasLtMatrixLayout_t layout(cudaDataType_t type, const Stored& m, int64_t batch) {
    const CublasLt& lt = cublas_lt();
    cublasLtMatrixLayout_t made = nullptr;
    require(lt.layout_create(&made, type, static_cast<uint64_t>(m.rows), static_cast<uint64_t>(m.columns), m.step),
            "describing a matrix");
    const auto count = static_cast<int32_t>(batch);
    require(lt.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), "describing a matrix");
    require(lt.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.batch, sizeof m.batch),
            "describing a matrix");
    return made;
  }

  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t x_ = nullptr, y_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  size_t workspace_ = 0;
};

// The plans of one stream, which live as long as the process.
struct Products {
  std::mutex mutex;
  cublasLtHandle_t handle = nullptr;
  std::map<Key, Plan> plans;
};
Products& products_of(const CudaStream& stream) {
  static std::mutex mutex;
  static auto& all = *new std::map<void*, Products>;  // not destroyed: by then the driver may be gone
  const std::lock_guard lock(mutex);
  Products& products = all[stream.handle()];
  if (!products.handle) require(cublas_lt().create(&products.handle), "beginning");
  return products;
}

}  // namespace

template <>
void fast_matmul(CudaStream& stream, const MatmulArgs& given, Precision precision) {
  with_aligned_lines(stream, given, [&](const MatmulArgs& args) {
    Products& products = products_of(stream);
    const Stored x = transpose_of(args.b, args.k, args.n), y = transpose_of(args.a, args.m, args.k);
    const std::lock_guard lock(products.mutex);
    const auto plan =
        products.plans.try_emplace(key_of(args, precision, x, y), products.handle, args, precision, x, y).first;
    plan->second.run(products.handle, stream, args);
  });
}

}  // namespace elinvar
