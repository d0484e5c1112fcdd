// The side queues of the emulated device, which are as late as a GPU may be: pending work runs when work that waits for
// it is called. Code that does not wait, or frees memory in use there, gets wrong results.
#include "tests/emulation/side_queue.h"

#include <mutex>
#include <utility>
#include <vector>

#include "tensor/side_queue.h"

namespace elinvar {
namespace emulation {
namespace {

struct Queue {
  EmulatedStream stream{0};
  std::mutex running, mutex;
  std::vector<std::function<void()>> calls = {};

  // Afterwards, work that another thread has begun is also done.
  void run() {
    const std::lock_guard one_at_a_time(running);
    std::vector<std::function<void()>> now;
    {
      const std::lock_guard lock(mutex);
      now.swap(calls);
    }
    SideQueueOff off;
    for (const auto& call : now) call();
  }

 private:
  // Calls in this scope run at once.
  struct SideQueueOff {
    EmulatedStream* const before = std::exchange(recorded_on<Emulated>(), nullptr);
    ~SideQueueOff() { recorded_on<Emulated>() = before; }
  };
};

Queue& queue(SideQueue::Of what) {
  static auto &gradients = *new Queue, &transfers = *new Queue;
  return what == SideQueue::Of::gradients ? gradients : transfers;
}

Queue* queue_of(const EmulatedStream* stream) {
  for (const SideQueue::Of what : {SideQueue::Of::gradients, SideQueue::Of::transfers})
    if (&queue(what).stream == stream) return &queue(what);
  return nullptr;
}

}  // namespace

bool put_off(std::function<void()>& work) {
  if (recorded_on<Emulated>() == nullptr) return false;
  Queue* const late = queue_of(recorded_on<Emulated>());
  if (late == nullptr) return false;
  const std::lock_guard lock(late->mutex);
  late->calls.push_back(std::move(work));
  return true;
}

void catch_up(const EmulatedStream& stream) {
  if (Queue* const late = queue_of(&stream)) late->run();
}

std::shared_ptr<void> kept_for(const EmulatedStream& stream, std::shared_ptr<void> block) {
  Queue* const late = queue_of(&stream);
  if (late == nullptr) return block;
  void* const begin = block.get();
  return {begin, [late, block = std::move(block)](void*) {
            const std::lock_guard lock(late->mutex);
            if (!late->calls.empty()) late->calls.push_back([block] {});
          }};
}

}  // namespace emulation

template <>
EmulatedStream& side_stream(int, SideQueue::Of what) {
  return emulation::queue(what).stream;
}

template <>
void order(EmulatedStream& first, EmulatedStream&, const Mark& since) {
  if (!since) emulation::catch_up(first);
}

}  // namespace elinvar
