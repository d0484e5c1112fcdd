#pragma once
// Temporary memory of a kernel: elements from the caching allocator, contents unspecified, freed at the end of the
// scope.
#include <memory>

#include "tensor/allocator.h"

namespace elinvar {

template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : block_(HostAllocator::instance().allocate(static_cast<size_t>(count) * sizeof(T))) {}
  T* data() const { return static_cast<T*>(block_.get()); }
  T& operator[](int64_t i) const { return data()[i]; }

 private:
  std::shared_ptr<void> block_;
};

}  // namespace elinvar
