// Loaded with LD_PRELOAD, limits each process of a program to THREAD_LIMIT threads at a time besides the first, like a
// limit of the system.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

std::atomic<int> running{0};

struct Thread {
  void* (*run)(void*);
  void* argument;
};

void* counted(void* given) {
  const Thread thread = *static_cast<Thread*>(given);
  delete static_cast<Thread*>(given);
  void* const result = thread.run(thread.argument);
  --running;
  return result;
}

}  // namespace

extern "C" int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*run)(void*),
                              void* argument) noexcept {
  static const auto create = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  const char* const limit = std::getenv("THREAD_LIMIT");
  if (limit != nullptr && ++running > std::atoi(limit)) {
    --running;
    return EAGAIN;
  }
  auto* thread = new Thread{run, argument};
  const int error = create(id, attributes, counted, thread);
  if (error != 0) delete thread;
  if (error != 0) --running;
  return error;
}
