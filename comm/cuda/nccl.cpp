// NCCL, by the library, which is loaded when it is first needed.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nccl.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr int kOldest = 21800;  // since then, non-blocking communicators support async errors, abort and finalize alike

// ncclCommShrink, which older headers do not have.
using Shrink = ncclResult_t (*)(ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int);
constexpr int kShrinkDefault = 0;

// The functions of the library, typed as in nccl.h.
struct Library {
  void* handle = nullptr;
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  Shrink shrink = nullptr;  // null before 2.27
  int version = 0;

  Library() {
    constexpr const char* kHint = "install NCCL, add its folder to LD_LIBRARY_PATH, or set run.data_plane = \"host\"";
    handle = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) fail("[nccl] {}: {}", ::dlerror(), kHint);
    find(get_version, "ncclGetVersion");
    if (get_version(&version) != ncclSuccess || version < kOldest)
      fail("[nccl] the library found is of version {}, {} or newer expected: {}", version, kOldest, kHint);
    find(error_string, "ncclGetErrorString");
    find(last_error, "ncclGetLastError");
    find(unique_id, "ncclGetUniqueId");
    find(init, "ncclCommInitRankConfig");
    find(async_error, "ncclCommGetAsyncError");
    find(finalize, "ncclCommFinalize");
    find(destroy, "ncclCommDestroy");
    find(abort, "ncclCommAbort");
    find(group_start, "ncclGroupStart");
    find(group_end, "ncclGroupEnd");
    find(send, "ncclSend");
    find(receive, "ncclRecv");
    shrink = reinterpret_cast<Shrink>(::dlsym(handle, "ncclCommShrink"));
  }

  template <class F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(handle, name));
    if (function == nullptr) fail("[nccl] the library found has no {}: install another version of NCCL", name);
  }
};

// Never unloaded, because threads of the library may run until the process ends.
const Library& library() {
  static const Library* const loaded = new Library;
  return *loaded;
}

std::string text_of(ncclResult_t result, ncclComm_t communicator) {
  const char* last = library().last_error(communicator);
  return fmt::format("{}{}{}", library().error_string(result), last != nullptr && *last != 0 ? ": " : "",
                     last != nullptr ? last : "");
}

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // or the next launch would report it
  fail("[nccl] {}: {}", what, cudaGetErrorString(error));
}

// The current device is chosen per thread.
void choose(int index) { require(cudaSetDevice(index), "choosing the device"); }

class CudaCommunicator final : public NcclCommunicator {
 public:
  CudaCommunicator(int index, const NcclId& id, int members, int me) : index_(index) {
    choose(index);
    require(cudaEventCreateWithFlags(&carried_, cudaEventDisableTiming), "making an event");
    ncclUniqueId unique;
    static_assert(sizeof unique.internal == sizeof id.bytes);
    std::memcpy(unique.internal, id.bytes.data(), id.bytes.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    // The library writes to communicator_ until it has formed: this object does not move.
    began(library().init(&communicator_, members, unique, me, &config));
  }

  // While it forms, the library reports its state by the parent communicator, and writes to communicator_ once it has
  // formed.
  CudaCommunicator(CudaCommunicator& parent, std::span<const int> gone) : index_(parent.index_), parent_(&parent) {
    choose(index_);
    require(cudaEventCreateWithFlags(&carried_, cudaEventDisableTiming), "making an event");
    std::vector<int> excluded(gone.begin(), gone.end());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    began(library().shrink(parent.communicator_, excluded.data(), static_cast<int>(excluded.size()), &communicator_,
                           &config, kShrinkDefault));
  }

  ~CudaCommunicator() override {
    std::string why;
    if (finishing_ && state(why) == State::done) static_cast<void>(library().destroy(communicator_));
    else abort();
    static_cast<void>(cudaEventDestroy(carried_));
  }

  State state(std::string& why) override {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) {
      why = failure_;
      return State::failed;
    }
    ncclResult_t now = ncclSuccess;
    const ncclComm_t answers = parent_ != nullptr ? parent_->communicator_ : communicator_;
    const ncclResult_t asked = library().async_error(answers, &now);
    if (asked != ncclSuccess) now = asked;
    if (now == ncclInProgress) return State::pending;
    if (now == ncclSuccess && communicator_ == nullptr) now = ncclInternalError;
    if (now == ncclSuccess && parent_ != nullptr) {
      parent_ = nullptr;
      return State::pending;  // from now on it reports its own state
    }
    if (now == ncclSuccess) {
      if (std::exchange(queueing_, false)) require(cudaEventRecord(carried_, queue_), "recording an event");
      return State::done;
    }
    why = failure_ = text_of(now, answers);
    return State::failed;
  }

  void transfer(std::span<const GpuPiece> sends, std::span<const GpuPiece> receives) override {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    queue_ = static_cast<cudaStream_t>(gpu_stream<Cuda>(index_).handle());
    queueing_ = true;
    began(library().group_start());
    for (const GpuPiece& p : sends) began(library().send(p.at, p.bytes, ncclUint8, p.peer, communicator_, queue_));
    for (const GpuPiece& p : receives)
      began(library().receive(p.at, p.bytes, ncclUint8, p.peer, communicator_, queue_));
    began(library().group_end());
  }

  bool carried() override {
    const std::lock_guard lock(mutex_);
    if (queueing_ || !failure_.empty()) return false;
    const cudaError_t error = cudaEventQuery(carried_);
    if (error == cudaSuccess) return true;
    if (error != cudaErrorNotReady) require(error, "waiting for the device");
    static_cast<void>(cudaGetLastError());  // or the next launch would report it
    return false;
  }

  void finish() override {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    finishing_ = true;
    began(library().finalize(communicator_));
  }

  std::unique_ptr<NcclCommunicator> shrink(std::span<const int> gone) override {
    const std::lock_guard lock(mutex_);
    if (library().shrink == nullptr) fail("[nccl] the library found has no ncclCommShrink");
    if (!failure_.empty()) fail("[nccl] a communicator that has failed cannot be shrunk: {}", failure_);
    return std::make_unique<CudaCommunicator>(*this, gone);
  }

  // Does not hold the lock while the library aborts, so that other threads see the end at once.
  void abort() override {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(aborted_, true)) return;
      if (failure_.empty()) failure_ = "it was aborted";
    }
    static_cast<void>(cudaSetDevice(index_));
    if (parent_ != nullptr) parent_->abort();  // also ends forming, until which the library may still write here
    if (communicator_ != nullptr) static_cast<void>(library().abort(communicator_));
  }

 private:
  void began(ncclResult_t result) {
    if (result == ncclSuccess || result == ncclInProgress || !failure_.empty()) return;
    failure_ = text_of(result, communicator_);
  }

  int index_;
  CudaCommunicator* parent_ = nullptr;  // set while this forms from it
  std::mutex mutex_;                    // guards the members below
  ncclComm_t communicator_ = nullptr;
  cudaStream_t queue_ = nullptr;   // of the last transfer
  cudaEvent_t carried_ = nullptr;  // recorded once the transfer is queued
  bool queueing_ = false;          // whether it is not yet queued
  bool finishing_ = false, aborted_ = false;
  std::string failure_;
};

class CudaNccl final : public Nccl {
 public:
  explicit CudaNccl(int index) : index_(index) { (void)library(); }

  Device device() const override { return {DeviceKind::cuda, static_cast<int8_t>(index_)}; }

  std::string version() const override {
    const int v = library().version;
    return fmt::format("NCCL {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }

  bool shrinks() const override { return library().shrink != nullptr; }

  // Distinguishes hosts as NCCL does, by name and boot, because several may be called localhost.
  std::string place() const override {
    char host[256] = {}, bus[64] = "?";
    ::gethostname(host, sizeof host - 1);
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    const char* const named = std::getenv("NCCL_HOSTID");
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, index_) != cudaSuccess) static_cast<void>(cudaGetLastError());
    return fmt::format("GPU {} of {}", bus, named != nullptr ? named : fmt::format("{} ({:.8})", host, boot));
  }

  NcclId make_id() override {
    ncclUniqueId unique;
    if (const ncclResult_t result = library().unique_id(&unique); result != ncclSuccess)
      fail("[nccl] no id for a group: {}; NCCL_SOCKET_IFNAME names the network to use", text_of(result, nullptr));
    NcclId id;
    std::memcpy(id.bytes.data(), unique.internal, id.bytes.size());
    return id;
  }

  std::unique_ptr<NcclCommunicator> begin(const NcclId& id, int members, int me) override {
    return std::make_unique<CudaCommunicator>(index_, id, members, me);
  }

 private:
  int index_;
};

}  // namespace

std::shared_ptr<Nccl> cuda_nccl(int index) { return std::make_shared<CudaNccl>(index); }

}  // namespace elinvar
