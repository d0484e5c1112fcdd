#pragma once
// Work of the emulated device's side queues (tensor/side_queue.h) that has been called and not done.
#include <functional>
#include <memory>

#include "tensor/gpu_stream.h"

namespace elinvar::emulation {

// Of a thread that uses a side queue: takes the work for later. False: it is to be done at once.
bool put_off(std::function<void()>& work);
// All that was called on this stream is done, if it is a side queue's.
void catch_up(const EmulatedStream& stream);
// The block, for this stream: a side queue's is not handed out again while there is work.
std::shared_ptr<void> kept_for(const EmulatedStream& stream, std::shared_ptr<void> block);

}  // namespace elinvar::emulation
