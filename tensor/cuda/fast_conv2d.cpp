// Convolutions and their gradients by cuDNN's graph interface. A graph of one operation is run by the first engine of
// the library's heuristics that adds products in float32, in a deterministic order, with little memory.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/cuda/libraries.h"
#include "tensor/fast_product.h"

namespace elinvar {
namespace {

constexpr int64_t kMostWorkspace = int64_t{1} << 30;

void require(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) fail("[conv2d] {}: {}", what, cudnn().status_string(status));
}

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    require(cudnn().descriptor_create(type, &handle_), "describing a convolution");
  }
  ~Descriptor() {
    if (handle_) cudnn().descriptor_destroy(handle_);
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  cudnnBackendDescriptor_t handle() const { return handle_; }

  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value, int64_t count = 1) {
    require(cudnn().set(handle_, name, type, count, &value), "describing a convolution");
  }
  template <size_t kCount>
  void set(cudnnBackendAttributeName_t name, const std::array<int64_t, kCount>& values) {
    require(cudnn().set(handle_, name, CUDNN_TYPE_INT64, kCount, values.data()), "describing a convolution");
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& part) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, part.handle_);
  }
  void finish() { require(cudnn().finalize(handle_), "describing a convolution"); }
  bool works() { return cudnn().finalize(handle_) == CUDNN_STATUS_SUCCESS; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

// The identifiers of a convolution's three tensors in a plan.
enum Name : int64_t { kImages = 1, kFilters = 2, kResults = 3 };

// Which tensor is computed from the other two, and the library's name for it.
struct Direction {
  const char* name;
  Name computed;
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t images, filters, results, convolution, alpha, beta;
};
constexpr Direction kForward = {"conv2d",
                                kResults,
                                CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
constexpr Direction kGradInput = {"conv2d_grad_input",
                                  kImages,
                                  CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
constexpr Direction kGradFilter = {"conv2d_grad_filter",
                                   kFilters,
                                   CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

// Addresses of the three tensors, in the order of their names.
using Addresses = std::array<void*, 3>;

int64_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 16;
  return static_cast<int64_t>(bits & (~bits + 1));
}

// Channels are last in memory; the library counts dimensions as (N, C, H, W) nevertheless.
Descriptor tensor(Name name, DType dtype, const void* address, int64_t n, int64_t c, int64_t h, int64_t w) {
  Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
        dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT);
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::array{n, c, h, w});
  t.set(CUDNN_ATTR_TENSOR_STRIDES, std::array{h * w * c, int64_t{1}, w * c, c});
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, std::array{static_cast<int64_t>(name)});
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::array{alignment_of(address)});
  t.finish();
  return t;
}

Descriptor graph_of(cudnnHandle_t handle, const Direction& direction, const ConvGeometry& g, DType dtype,
                    const Addresses& at) {
  const Descriptor x = tensor(kImages, dtype, at[0], g.n, g.c, g.h, g.w),
                   w = tensor(kFilters, dtype, at[1], g.o, g.c / g.groups, g.kh, g.kw),
                   y = tensor(kResults, dtype, at[2], g.n, g.o, g.oh, g.ow);
  Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  convolution.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  convolution.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::array{int64_t{2}});
  convolution.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::array{g.pad_h, g.pad_w});
  convolution.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::array{g.pad_h, g.pad_w});
  convolution.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::array{g.dilation_h, g.dilation_w});
  convolution.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::array{g.stride_h, g.stride_w});
  convolution.finish();
  Descriptor operation(direction.type);
  operation.set(direction.images, x);
  operation.set(direction.filters, w);
  operation.set(direction.results, y);
  operation.set(direction.convolution, convolution);
  operation.set(direction.alpha, CUDNN_TYPE_FLOAT, 1.0f);
  operation.set(direction.beta, CUDNN_TYPE_FLOAT, 0.0f);
  operation.finish();
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  graph.finish();
  return graph;
}

// Returns the library's proposals, the one that it expects to be fastest first.
std::vector<Descriptor> configurations(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  std::vector<Descriptor> found;
  if (!heuristics.works()) return found;
  int64_t count = 0;
  require(cudnn().get(heuristics.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                      nullptr),
          "asking for engines");
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int64_t i = 0; i < count; ++i)
    handles.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).handle());
  if (count == 0) return found;
  require(cudnn().get(heuristics.handle(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                      handles.data()),
          "asking for engines");
  found.erase(found.begin() + count, found.end());
  return found;
}

// Whether it adds the products of the unchanged factors, in float32 and always in one order.
bool adds_as_promised(const Descriptor& configuration) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.handle();
  int64_t count = 0;
  require(cudnn().get(configuration.handle(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                      &handle),
          "asking for an engine");
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  require(cudnn().get(engine.handle(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes.size(),
                      &count, notes.data()),
          "asking for an engine's notes");
  constexpr std::array kOthers = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
                                  CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
                                  CUDNN_NUMERICAL_NOTE_FFT,
                                  CUDNN_NUMERICAL_NOTE_WINOGRAD,
                                  CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
                                  CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
                                  CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13};
  return std::find_first_of(notes.begin(), notes.begin() + count, kOthers.begin(), kOthers.end()) ==
         notes.begin() + count;
}

struct Plan {
  Descriptor plan;
  int64_t workspace;
};

Plan plan_of(cudnnHandle_t handle, const Direction& direction, const ConvGeometry& g, DType dtype,
             const Addresses& at) {
  const Descriptor graph = graph_of(handle, direction, g, dtype, at);
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const Descriptor& configuration : configurations(graph, mode)) {
      if (!adds_as_promised(configuration)) continue;
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
      if (!plan.works()) continue;
      int64_t workspace = 0, count = 0;
      require(
          cudnn().get(plan.handle(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &workspace),
          "asking for a workspace");
      if (workspace <= kMostWorkspace) return {std::move(plan), workspace};
    }
  fail(
      "[{}] cuDNN has no deterministic engine for {} images of {} x {} x {} and {} filters of {} x {} in {} groups; "
      "run.numerics = \"portable\" has one, or another run.precision may",
      direction.name, g.n, g.h, g.w, g.c, g.o, g.kh, g.kw, g.groups);
}

// Everything that decides which engine is taken.
using Key = std::array<int64_t, 21>;
Key key_of(const Direction& direction, const ConvGeometry& g, DType dtype, const Addresses& at) {
  return {direction.computed,
          static_cast<int64_t>(dtype),
          g.n,
          g.h,
          g.w,
          g.c,
          g.o,
          g.kh,
          g.kw,
          g.oh,
          g.ow,
          g.stride_h,
          g.stride_w,
          g.pad_h,
          g.pad_w,
          g.dilation_h,
          g.dilation_w,
          g.groups,
          alignment_of(at[0]),
          alignment_of(at[1]),
          alignment_of(at[2])};
}

// The plans of one stream, which live as long as the process.
struct Convolutions {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::map<Key, Plan> plans;
};
Convolutions& convolutions_of(const CudaStream& stream) {
  static std::mutex mutex;
  static auto& all = *new std::map<void*, Convolutions>;  // not destroyed: by then the driver may be gone
  const std::lock_guard lock(mutex);
  Convolutions& convolutions = all[stream.handle()];
  if (!convolutions.handle) {
    require(cudnn().create(&convolutions.handle), "beginning");
    require(cudnn().set_stream(convolutions.handle, static_cast<cudaStream_t>(stream.handle())), "beginning");
  }
  return convolutions;
}

void run(CudaStream& stream, const Direction& direction, const ConvGeometry& g, DType dtype, const Addresses& at) {
  Convolutions& convolutions = convolutions_of(stream);
  const std::lock_guard lock(convolutions.mutex);
  const Key key = key_of(direction, g, dtype, at);
  auto found = convolutions.plans.find(key);
  if (found == convolutions.plans.end())
    found = convolutions.plans.emplace(key, plan_of(convolutions.handle, direction, g, dtype, at)).first;
  const auto& [plan, bytes] = found->second;
  const std::shared_ptr<void> workspace = bytes > 0 ? stream.allocate(static_cast<size_t>(bytes)) : nullptr;
  Descriptor arguments(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  arguments.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::array<int64_t, 3>{kImages, kFilters, kResults});
  arguments.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, at[0], 3);
  void* const scratch = workspace.get();
  arguments.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, scratch);
  arguments.finish();
  require(cudnn().execute(convolutions.handle, plan.handle(), arguments.handle()), direction.name);
}

// Returns the address of an operand, which is only read.
void* address(const In& in) { return const_cast<void*>(in.data); }

}  // namespace

template <>
void fast_conv2d(CudaStream& stream, const ConvArgs& a, Precision) {
  run(stream, kForward, a.g, a.x.dtype, {address(a.x), address(a.w), a.y.data});
}

template <>
void fast_conv2d_grad_input(CudaStream& stream, const ConvGradInputArgs& a, Precision) {
  run(stream, kGradInput, a.g, a.dy.dtype, {a.dx.data, address(a.w), address(a.dy)});
}

template <>
void fast_conv2d_grad_filter(CudaStream& stream, const ConvGradFilterArgs& a, Precision) {
  run(stream, kGradFilter, a.g, a.dy.dtype, {address(a.x), a.dw.data, address(a.dy)});
}

}  // namespace elinvar
