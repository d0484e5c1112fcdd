#include "comm/nccl.h"

#include "tensor/base/check.h"

namespace elinvar {

std::string NcclId::hex() const {
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

NcclId NcclId::parse(const std::string& hex) {
  NcclId id;
  const bool digits = hex.find_first_not_of("0123456789abcdef") == std::string::npos;
  check(digits && hex.size() == 2 * id.bytes.size(), "[nccl] an id of {} hexadecimal digits expected, got '{}'",
        2 * id.bytes.size(), hex.substr(0, 2 * id.bytes.size()));
  for (size_t i = 0; i < id.bytes.size(); ++i)
    id.bytes[i] = static_cast<unsigned char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return id;
}

FoundNccl find_nccl(Device device) {
  try {
    switch (device.kind) {
      case DeviceKind::cpu:
        return {.why_not = "it computes on the CPU"};
      case DeviceKind::cuda:
        return {.nccl = cuda_nccl(device.index)};
      case DeviceKind::emulated:
        return {.nccl = emulated_nccl()};
    }
  } catch (const Failure& failure) {
    return {.why_not = failure.what()};
  }
  refuse(device);
}

}  // namespace elinvar
