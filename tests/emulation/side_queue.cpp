// The side queues of the emulated device. Their work is scheduled (scheduler.h), by default as late as on a GPU: when
// work that waits for it is called. Code that does not wait, or frees memory in use there, gets wrong results.
#include "tests/emulation/side_queue.h"

#include <utility>

#include "tensor/side_queue.h"
#include "tests/emulation/scheduler.h"

namespace elinvar {
namespace emulation {
namespace {

struct Queue {
  EmulatedStream stream{0};
  Scheduler::Stream work{.device = -1};  // no device of CUDA's
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
  Scheduler::instance().queue(late->work, std::move(work));
  return true;
}

void catch_up(const EmulatedStream& stream) {
  if (Queue* const late = queue_of(&stream)) Scheduler::instance().synchronize(late->work);
}

std::shared_ptr<void> kept_for(const EmulatedStream& stream, std::shared_ptr<void> block) {
  Queue* const late = queue_of(&stream);
  if (late == nullptr) return block;
  void* const begin = block.get();
  return {begin, [late, block = std::move(block)](void*) {
            Scheduler& scheduler = Scheduler::instance();
            if (!scheduler.idle(late->work)) scheduler.queue(late->work, [block] {});
          }};
}

}  // namespace emulation

template <>
EmulatedStream& side_stream(int, SideQueue::Of what) {
  return emulation::queue(what).stream;
}

// The device's own stream has nothing pending.
template <>
void order(EmulatedStream& first, EmulatedStream& next, const Mark& since) {
  using emulation::Scheduler;
  emulation::Queue *const before = emulation::queue_of(&first), *const after = emulation::queue_of(&next);
  if (since || before == nullptr) return;
  if (after == nullptr) return emulation::catch_up(first);
  const auto event = std::make_shared<Scheduler::Recorded>();
  Scheduler::instance().record(event, before->work);
  Scheduler::instance().wait(after->work, event);
}

}  // namespace elinvar
