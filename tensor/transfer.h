#pragma once
// Transfers of tensors between the host and a GPU while it computes. Copies have queues besides the device's stream
// (tensor/gpu_stream.h). Queues and stream wait for each other by events; the caller waits only in wait().
//
//   Tensor batch = page_locked(shape, dtype, device);   // filled by a reader
//   Upload sent(batch, device);                         // begins, whatever the GPU is at
//   Tensor input = sent.take();                         // for ops that are called from now on
//
//   Download loss(total);                               // follows what was called before
//   ... call more ...
//   double value = loss.wait().item();
//
// For the CPU these are the tensors themselves.
#include <memory>

#include "tensor/tensor.h"

namespace elinvar {

// Allocates memory on the CPU that the device's copy engine can access, so that copies take no time of the host. It is
// pooled; its contents are unspecified.
Tensor page_locked(const Shape& shape, DType dtype, Device device);

// A place in the work of a graph (tensor/graph.h) that has been launched. Null means after all calls so far.
using Mark = std::shared_ptr<const void>;

class CopyUnderWay {
 public:
  // Later uses of the memory on the device wait until the copy is done.
  virtual ~CopyUnderWay() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;             // the caller waits
  virtual void before_the_rest() = 0;  // later calls on the device's stream wait
};

// A copy to the device. It waits for earlier calls on the device, whose memory it may reuse.
class Upload {
 public:
  Upload() = default;  // empty
  // The elements must not change from now on. Memory that is not page-locked is first copied to memory that is.
  Upload(const Tensor& host, Device device);

  const Tensor& source() const { return host_; }
  Device device() const { return there_.device(); }
  Tensor take() const;

 private:
  Tensor host_, there_;
  std::shared_ptr<CopyUnderWay> copy_;
};

class Download {
 public:
  Download() = default;
  // Until wait() returns, nothing may write to `there`. With a mark, the copy waits for the mark only, while the rest
  // of the graph runs.
  explicit Download(Tensor there, Mark since = {});
  // Copies to `here`, contiguous and best page-locked, which must not be read or written until wait() returns.
  Download(Tensor there, Tensor here);

  bool ready() { return copy_ == nullptr || copy_->done(); }  // wait() would return at once
  Tensor wait();                                              // the tensor on the CPU; call it once

 private:
  void begin(const Mark& since);

  Tensor there_, here_;
  std::unique_ptr<CopyUnderWay> copy_;
};

// Defined for each kind of device. Page-locked memory is not reused while a copy reads or writes it.
template <class B>
std::shared_ptr<void> allocate_page_locked(GpuStream<B>& stream, size_t bytes);
template <class B>
std::unique_ptr<CopyUnderWay> begin_upload(GpuStream<B>& stream, void* device, const void* host, size_t bytes);
template <class B>
std::unique_ptr<CopyUnderWay> begin_download(GpuStream<B>& stream, void* host, const void* device, size_t bytes,
                                             const Mark& since);

}  // namespace elinvar
