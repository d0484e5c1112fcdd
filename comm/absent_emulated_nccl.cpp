// For builds without the emulated GPU.
#include "comm/nccl.h"

namespace elinvar {

std::shared_ptr<Nccl> emulated_nccl() { refuse({DeviceKind::emulated}); }

}  // namespace elinvar
