// Copies between the host and a GPU, and the page-locked memory that they use.
#include "tensor/transfer.h"

#include <cuda_runtime.h>

#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "tensor/cuda/error.h"
#include "tensor/cuda/event.h"

namespace elinvar {
namespace {

cudaStream_t queue_of(CudaStream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

// Blocks of page-locked memory, each with the event after which no copy uses it. There are eight sizes per octave, and
// a block serves requests up to a quarter smaller, so that batches of almost one size share blocks. If the host has no
// more memory, idle blocks are given back.
class PageLocked {
 public:
  // Never destroyed: tensors in static storage may outlive any order of destruction.
  static PageLocked& instance() {
    static auto* all = new PageLocked;
    return *all;
  }

  std::shared_ptr<void> allocate(size_t wanted) {
    constexpr size_t kPage = 4096;
    size_t bytes = kPage;
    if (wanted > kPage) {
      const size_t step = std::max(kPage, std::bit_floor(wanted) / 8);
      bytes = (wanted + step - 1) / step * step;
    }
    char* block = nullptr;
    std::unique_lock lock(mutex_);
    const auto last = free_.upper_bound(bytes + bytes / 4);
    for (auto it = free_.lower_bound(bytes); it != last; ++it) {
      if (it->second.busy && !it->second.busy->done()) continue;
      block = it->second.begin;
      bytes = it->first;
      free_.erase(it);
      break;
    }
    if (block == nullptr) {  // may take a tenth of a second
      lock.unlock();
      block = fresh(bytes);
      lock.lock();
    }
    live_[block] = {bytes, nullptr};
    return {block, [this](void* p) { release(static_cast<char*>(p)); }};
  }

  // Whether these bytes are in a block.
  bool holds(const void* begin) {
    const std::lock_guard lock(mutex_);
    return find(begin) != live_.end();
  }
  void use(const void* begin, SharedEvent until) {
    const std::lock_guard lock(mutex_);
    if (const auto block = find(begin); block != live_.end()) block->second.busy = std::move(until);
  }

 private:
  struct Live {
    size_t bytes;
    SharedEvent busy;
  };
  struct Free {
    char* begin;
    SharedEvent busy;
  };

  char* fresh(size_t bytes) {
    void* block = nullptr;
    cudaError_t answer = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
    if (answer == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      give_back_idle();
      answer = cudaHostAlloc(&block, bytes, cudaHostAllocPortable);
    }
    require(answer, "allocating page-locked memory of the host");
    return static_cast<char*>(block);
  }
  void give_back_idle() {
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end();) {
      const bool idle = !it->second.busy || it->second.busy->done();
      if (idle) static_cast<void>(cudaFreeHost(it->second.begin));
      it = idle ? free_.erase(it) : std::next(it);
    }
  }
  std::map<char*, Live>::iterator find(const void* address) {
    char* at = const_cast<char*>(static_cast<const char*>(address));
    auto block = live_.upper_bound(at);
    if (block == live_.begin()) return live_.end();
    --block;
    return at < block->first + block->second.bytes ? block : live_.end();
  }
  void release(char* begin) {
    const std::lock_guard lock(mutex_);
    const auto block = live_.find(begin);
    free_.emplace(block->second.bytes, Free{begin, std::move(block->second.busy)});
    live_.erase(block);
  }

  std::mutex mutex_;
  std::map<char*, Live> live_;
  std::multimap<size_t, Free> free_;
};

// The copy queues of a stream, one for each direction, as a GPU has one engine for each.
struct CopyQueues {
  cudaStream_t in = nullptr, out = nullptr;

  static const CopyQueues& of(CudaStream& stream) {
    static std::mutex mutex;
    static std::map<void*, CopyQueues> all;
    const std::lock_guard lock(mutex);
    CopyQueues& queues = all[stream.handle()];
    for (cudaStream_t* queue : {&queues.in, &queues.out})
      if (*queue == nullptr)
        require(cudaStreamCreateWithFlags(queue, cudaStreamNonBlocking), "making a stream for copies");
    return queues;
  }
};

class CudaCopy final : public CopyUnderWay {
 public:
  CudaCopy(cudaStream_t compute, SharedEvent event) : compute_(compute), event_(std::move(event)) {}
  ~CudaCopy() override {
    if (!ordered_) static_cast<void>(event_->hold(compute_));
  }
  bool done() override { return ordered_ = ordered_ || event_->done(); }
  void wait() override {
    event_->wait();
    ordered_ = true;
  }
  void before_the_rest() override {
    require(event_->hold(compute_), "waiting for a copy");
    ordered_ = true;
  }

 private:
  cudaStream_t compute_;
  SharedEvent event_;
  bool ordered_ = false;
};

std::unique_ptr<CopyUnderWay> begin(CudaStream& stream, cudaStream_t queue, void* to, const void* from, size_t bytes,
                                    cudaMemcpyKind kind, const Mark& since = {}) {
  not_while_recording(stream, kind == cudaMemcpyHostToDevice ? "a copy from the host" : "a copy to the host");
  if (since) require(static_cast<const Event*>(since.get())->hold(queue), "ordering a copy");
  else require(Event(queue_of(stream)).hold(queue), "ordering a copy");
  require(cudaMemcpyAsync(to, from, bytes, kind, queue), "copying");
  auto event = std::make_shared<const Event>(queue);
  PageLocked::instance().use(kind == cudaMemcpyHostToDevice ? from : to, event);
  return std::make_unique<CudaCopy>(queue_of(stream), std::move(event));
}

}  // namespace

template <>
std::shared_ptr<void> allocate_page_locked(CudaStream&, size_t bytes) {
  return PageLocked::instance().allocate(bytes);
}

template <>
std::unique_ptr<CopyUnderWay> begin_upload(CudaStream& stream, void* device, const void* host, size_t bytes) {
  PageLocked& locked = PageLocked::instance();
  std::shared_ptr<void> staged;
  if (!locked.holds(host)) {
    staged = locked.allocate(bytes);
    cpu_stream().parallel_for(static_cast<int64_t>(bytes), int64_t{1} << 20, [&](int64_t first, int64_t last) {
      std::memcpy(static_cast<char*>(staged.get()) + first, static_cast<const char*>(host) + first,
                  static_cast<size_t>(last - first));
    });
    host = staged.get();
  }
  return begin(stream, CopyQueues::of(stream).in, device, host, bytes, cudaMemcpyHostToDevice);
}

template <>
std::unique_ptr<CopyUnderWay> begin_download(CudaStream& stream, void* host, const void* device, size_t bytes,
                                             const Mark& since) {
  return begin(stream, CopyQueues::of(stream).out, host, device, bytes, cudaMemcpyDeviceToHost, since);
}

// Copies by way of page-locked pieces, so that the host waits for nothing but, with large tensors, the eighth piece
// before.
template <>
void CudaStream::copy_in(void* device, const void* host, size_t bytes) {
  not_while_recording(*this, "a copy from the host");
  constexpr size_t kPiece = size_t{4} << 20, kPieces = 8;
  std::deque<SharedEvent> under_way;
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t n = std::min(kPiece, bytes - at);
    if (under_way.size() == kPieces) {
      under_way.front()->wait();
      under_way.pop_front();
    }
    const std::shared_ptr<void> piece = PageLocked::instance().allocate(n);
    std::memcpy(piece.get(), static_cast<const char*>(host) + at, n);
    require(cudaMemcpyAsync(static_cast<char*>(device) + at, piece.get(), n, cudaMemcpyHostToDevice, queue_of(*this)),
            "copying to the device");
    under_way.push_back(std::make_shared<const Event>(queue_of(*this)));
    PageLocked::instance().use(piece.get(), under_way.back());
  }
}

template <>
void CudaStream::copy_out(void* host, const void* device, size_t bytes) {
  not_while_recording(*this, "a copy to the host");
  require(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, queue_of(*this)), "copying from the device");
  require(cudaStreamSynchronize(queue_of(*this)), "copying from the device");
}

}  // namespace elinvar
