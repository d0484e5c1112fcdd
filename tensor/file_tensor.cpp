#include "tensor/file_tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tensor/allocator.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {
namespace {

// Advises the system about the pages of a view. Advice that it does not take changes nothing.
void advise(const Tensor& x, int advice) {
  check(x.device() == Device{} && x.contiguous(), "[file] contiguous elements on the CPU expected");
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(x.raw());
  const uintptr_t begin = first / page * page, end = first + static_cast<uintptr_t>(x.bytes());
  if (x.bytes() > 0) static_cast<void>(::madvise(reinterpret_cast<void*>(begin), end - begin, advice));
}

}  // namespace

Tensor zeros_in_file(const Shape& shape, DType dtype, const std::filesystem::path& folder) {
  const int64_t elements = shape.numel() * size_of(dtype);
  const size_t bytes = static_cast<size_t>(elements) + kSlack;  // kernels may read past the end
  File file = File::temporary(folder);
  file.reserve(static_cast<int64_t>(bytes));
  const std::shared_ptr<void> memory = file.map(bytes);
  return Tensor::over(memory, memory.get(), shape, dtype);
}

void read_ahead(const Tensor& x) { advise(x, MADV_WILLNEED); }

// MADV_DONTNEED loses nothing of a shared mapping: changed pages remain in the system's cache of the file.
void hand_back(const Tensor& x) { advise(x, MADV_DONTNEED); }

}  // namespace elinvar
