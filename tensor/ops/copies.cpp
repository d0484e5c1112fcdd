#include "tensor/ops/copies.h"

#include <cstring>

#include "tensor/base/check.h"
#include "tensor/trace.h"

namespace elinvar {

void copies(CpuStream&, std::span<const CopiesArgs> all) {
  for (const CopiesArgs& a : all)
    if (a.bytes > 0) std::memcpy(a.to, a.from, static_cast<size_t>(a.bytes));
}

namespace {

std::vector<Tensor> copies_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> made;
  std::vector<CopiesArgs> all;
  for (const Tensor& t : tensors) {
    check(t.contiguous(), "[copies] contiguous elements expected");
    check(t.device() == tensors[0].device(), "[copies] tensors must be on one device, got {} and {}",
          to_string(tensors[0].device()), to_string(t.device()));
    made.push_back(Tensor::empty(t.shape(), t.dtype(), t.device()));
    if (t.bytes() > 0) all.push_back({t.raw(), made.back().raw(), t.bytes()});
  }
  if (!all.empty()) on(tensors[0].device(), [&](auto& stream) { copies(stream, std::span<const CopiesArgs>(all)); });
  return made;
}

const Op kCopies("copies(of) -> made", copies_of);

}  // namespace

std::vector<Tensor> copies(const std::vector<Tensor>& of) { return kCopies(of); }

}  // namespace elinvar
