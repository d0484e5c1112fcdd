#pragma once
// NCCL for emulated GPUs: threads or processes of one machine, over sockets. The environment variable
// ELINVAR_EMULATED_NCCL makes it fail in a process:
//
//   missing            there is no library
//   init_fails, init_hangs
//   no_shrink          the library is older than that function
//   shrink_fails, shrink_hangs
//   transfer_fails=N, transfer_hangs=N     from the Nth transfer of a communicator on
//   transfer_breaks=N                      the Nth is done, and fails before it is carried
#include "comm/nccl.h"

namespace elinvar::emulation {

struct NcclFault {
  bool missing = false, init_fails = false, init_hangs = false;
  bool no_shrink = false, shrink_fails = false, shrink_hangs = false;
  int64_t transfer_fails = INT64_MAX, transfer_hangs = INT64_MAX, transfer_breaks = INT64_MAX;
};
NcclFault parse_nccl_fault(const std::string& text);
std::shared_ptr<Nccl> nccl(const NcclFault& fault);

}  // namespace elinvar::emulation
