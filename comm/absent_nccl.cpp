// For builds without NCCL.
#include "comm/nccl.h"
#include "tensor/base/check.h"

namespace elinvar {

std::shared_ptr<Nccl> cuda_nccl(int) {
  fail("it was built without NCCL: nccl.h was not found (install libnccl-dev, then run CMake again)");
}

}  // namespace elinvar
