#pragma once
// Pending work of the emulated device's side queues (tensor/side_queue.h).
#include <functional>
#include <memory>

#include "tensor/gpu_stream.h"

namespace elinvar::emulation {

// If the thread uses a side queue, takes the work for later. Returns false if the work must be done at once.
bool put_off(std::function<void()>& work);
// If the stream is a side queue's, does all pending work of that queue.
void catch_up(const EmulatedStream& stream);
// Returns the block for use by this stream. A side queue's block is not reused while work is pending.
std::shared_ptr<void> kept_for(const EmulatedStream& stream, std::shared_ptr<void> block);

}  // namespace elinvar::emulation
