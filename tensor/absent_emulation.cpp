// For builds without the emulated GPU.
#include "tensor/absent_device.h"

namespace elinvar {

template class GpuStream<Emulated>;

template <>
int gpu_count<Emulated>() {
  return 0;
}
template <>
EmulatedStream& gpu_stream(int) {
  refuse(kAbsent<Emulated>);
}
template <>
EmulatedStream*& recorded_on() {
  static thread_local EmulatedStream* none = nullptr;
  return none;
}

}  // namespace elinvar
