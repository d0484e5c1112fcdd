#include "tools/training/worker_memory.h"

#include <link.h>
#include <unistd.h>

#include <algorithm>

namespace elinvar {
namespace {

// Two of ZeroMQ, three that copy the state, the session's listener, and the one that waits for signals.
constexpr int64_t kThreads = 7;
// Pages of its stack that a thread touches, at most: for its own frames, and the control block of libc.
constexpr int64_t kStackPages = 4;
// Code and constants of ZeroMQ, its libraries and sessions, which no forecast runs: for a network of 49 thousand
// parameters, the pages of files (RssFile in /proc/PID/status) are 16.6 MB of a worker and 13.2 MB of `train check`.
constexpr int64_t kCodeBytes = 3'500'000;
constexpr int64_t kHeapPage = int64_t{2} << 20;  // tensor/heap.cpp

// Returns the bytes of the thread-local variables of the program and its libraries.
int64_t thread_local_bytes() {
  int64_t bytes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* sum) {
        for (int i = 0; i < object->dlpi_phnum; ++i)
          if (object->dlpi_phdr[i].p_type == PT_TLS)
            *static_cast<int64_t*>(sum) += static_cast<int64_t>(object->dlpi_phdr[i].p_memsz);
        return 0;
      },
      &bytes);
  return bytes;
}

}  // namespace

int64_t worker_bytes(int readers) {
  return (kThreads + readers) * (thread_local_bytes() + kStackPages * sysconf(_SC_PAGESIZE)) + kCodeBytes + kHeapPage;
}

}  // namespace elinvar
