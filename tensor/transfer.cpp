#include "tensor/transfer.h"

#include <utility>

#include "tensor/base/check.h"
#include "tensor/ops/copy.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

size_t bytes_of(const Tensor& x) { return static_cast<size_t>(x.bytes()); }

Tensor over(const std::shared_ptr<void>& block, const Shape& shape, DType dtype) {
  return Tensor::over(block, block.get(), shape, dtype);
}

}  // namespace

Tensor page_locked(const Shape& shape, DType dtype, Device device) {
  if (device == Device{}) return Tensor::empty(shape, dtype);
  std::shared_ptr<void> block;
  on_gpu(device, [&](auto& stream) {
    block = allocate_page_locked(stream, static_cast<size_t>(shape.numel() * size_of(dtype)));
  });
  return over(block, shape, dtype);
}

Upload::Upload(const Tensor& host, Device device) {
  check(host.device() == Device{}, "[upload] elements on the CPU expected, these lie on {}", to_string(host.device()));
  const trace::Pause pause;
  host_ = host.to_contiguous();
  if (device == Device{}) {
    there_ = host_;
    return;
  }
  there_ = Tensor::empty(host.shape(), host.dtype(), device);
  on_gpu(device, [&](auto& stream) {
    copy_ = begin_upload(stream, there_.raw(), std::as_const(host_).raw(), bytes_of(host_));
  });
}

Tensor Upload::take() const {
  if (copy_) copy_->before_the_rest();
  return there_;
}

// Memory freed while it is copied from is reused only by later calls, which wait for the copy.
Download::Download(Tensor there, Mark since) {
  if (!there.defined() || there.device() == Device{}) {
    here_ = std::move(there);
    return;
  }
  const trace::Pause pause;
  if (!there.contiguous()) since = {};
  there_ = there.to_contiguous();
  here_ = page_locked(there_.shape(), there_.dtype(), there_.device());
  begin(since);
}

Download::Download(Tensor there, Tensor here) : there_(std::move(there)), here_(std::move(here)) {
  check(there_.device() != Device{} && here_.device() == Device{} && there_.contiguous() && here_.contiguous() &&
            there_.shape() == here_.shape() && there_.dtype() == here_.dtype(),
        "[download] two contiguous tensors of one shape and type expected, the first on a GPU");
  begin({});
}

void Download::begin(const Mark& since) {
  on_gpu(there_.device(), [&](auto& stream) {
    copy_ = begin_download(stream, here_.raw(), std::as_const(there_).raw(), bytes_of(there_), since);
  });
}

Tensor Download::wait() {
  if (copy_) copy_->wait();
  copy_.reset();
  there_ = {};
  return std::move(here_);
}

}  // namespace elinvar
