#include "tools/training/gpu_needs.h"

namespace elinvar {
namespace {

// Bytes of a GPU that CUDA, its libraries and the kernels are taken to need.
constexpr int64_t kContextBytes = 600'000'000;

// Returns the bytes of a batch's inputs that go to a GPU: indices stay on the host.
int64_t sent_bytes(const Batch& batch) {
  int64_t bytes = batch.is_text() ? 0 : batch.input.bytes();
  for (const Tensor& further : batch.further_inputs) bytes += further.dtype() == DType::i32 ? 0 : further.bytes();
  return bytes;
}

}  // namespace

int workers_sharing(const std::string& name, Device device, int workers, int gpus) {
  if (device.kind != DeviceKind::cuda || name == "cuda") return 1;  // which gives each one of its own
  const int named = name == "auto" ? gpus : 1;
  return (workers + named - 1) / named;
}

GpuNeeds gpu_needs(const Config& config, Device device, int sharing) {
  return {.group = sharing == 1 && config.run.data_plane != "host",
          .context = device.kind == DeviceKind::cuda ? kContextBytes : 0,
          .graphs = config.run.cuda_graphs};
}

void add_batches(MemoryNeeds& needs, const Config& config, const Batch& batch) {
  const int64_t batches = config.reader.prefetch + 1;
  int64_t bytes = batch.input.bytes() + (batch.target.defined() ? batch.target.bytes() : 0);
  for (const Tensor& further : batch.further_inputs) bytes += further.bytes();
  needs.process += batches * bytes;
  if (needs.gpu) needs.gpu->batches = batches * sent_bytes(batch);
}

}  // namespace elinvar
