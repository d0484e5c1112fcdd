// Every two members of a communicator have a connection; a thread of each member sends and receives. As in NCCL, a call
// returns at once, a peer that is gone makes a transfer fail, and one that hangs leaves it pending. A transfer is done
// when its elements have arrived: the next call on the device runs at once and waits for nothing.
#include "tests/emulation/nccl.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tensor/base/check.h"
#include "tests/emulation/side_queue.h"

namespace elinvar::emulation {
namespace {

constexpr int kLook = 5;  // ms between two checks for a stop

class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

Socket make_socket() { return Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// In the system's abstract name space, which needs no cleanup.
std::pair<sockaddr_un, socklen_t> address_of(const NcclId& id, int member) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = id.hex().substr(0, 32) + "-" + std::to_string(member);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

struct Bytes {
  char* at;
  size_t left;
};
using Queues = std::vector<std::deque<Bytes>>;  // for each peer

class Communicator final : public NcclCommunicator {
 public:
  Communicator(const NcclFault& fault, const NcclId& id, int members, int me, std::function<void()> formed = {})
      : fault_(fault), id_(id), me_(me), formed_(std::move(formed)), peers_(static_cast<size_t>(members)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  State state(std::string& why) override {
    const std::lock_guard lock(mutex_);
    why = why_;
    return state_;
  }

  // Like ncclCommShrink without a flag, refuses a communicator that is at work or has failed, and a member that is
  // itself gone. A member that names others than its peers do waits for members that do not come. This communicator
  // stays in use until the new one has formed, or for good if it does not form.
  std::unique_ptr<NcclCommunicator> shrink(std::span<const int> gone) override {
    check(!fault_.no_shrink, "[emulation] this library has no shrink");
    const std::lock_guard lock(mutex_);
    if (state_ != State::done) fail("[emulation] a communicator that is in use, or has failed, cannot be shrunk");
    if (gone.empty() || std::find(gone.begin(), gone.end(), me_) != gone.end())
      fail("[emulation] members that are gone, and not the caller, expected");
    const std::set<int> without(gone.begin(), gone.end());
    NcclId id = id_;
    for (const int m : without) id.bytes[static_cast<size_t>(m) % 16] ^= static_cast<unsigned char>(0x80 + m);
    id.bytes[15] ^= static_cast<unsigned char>(without.size());
    const auto before = std::distance(without.begin(), without.lower_bound(me_));
    NcclFault fault = fault_;
    fault.init_fails = fault_.shrink_fails;
    fault.init_hangs = fault_.shrink_hangs;
    state_ = State::pending;
    return std::make_unique<Communicator>(fault, id, static_cast<int>(peers_.size() - without.size()),
                                          me_ - static_cast<int>(before), [this] { set(State::done); });
  }

  void transfer(std::span<const GpuPiece> sends, std::span<const GpuPiece> receives) override {
    Queues out(peers_.size()), in(peers_.size());
    for (const GpuPiece& p : sends) out[static_cast<size_t>(p.peer)].push_back({static_cast<char*>(p.at), p.bytes});
    for (const GpuPiece& p : receives) in[static_cast<size_t>(p.peer)].push_back({static_cast<char*>(p.at), p.bytes});
    catch_up(gpu_stream<Emulated>(0));
    const std::lock_guard lock(mutex_);
    invariant(state_ == State::done, "a transfer begins when what was begun before is done");
    state_ = State::pending;
    looks_ = 0;
    ++count_;
    work_.emplace(std::move(out), std::move(in));
    changed_.notify_all();
  }

  // A device is slightly behind its queue.
  bool carried() override {
    const std::lock_guard lock(mutex_);
    if (looks_++ == 0) return false;
    if (count_ != fault_.transfer_breaks) return state_ == State::done;
    state_ = State::failed;
    why_ = "the emulation was told to fail";
    return false;
  }
  void finish() override {}
  void abort() override {
    thread_.request_stop();
    const std::lock_guard joining(abort_);
    if (thread_.joinable()) thread_.join();
    set(State::failed, "it was aborted");
  }

 private:
  void set(State state, const std::string& why = "") {
    const std::lock_guard lock(mutex_);
    state_ = state;
    why_ = why;
  }

  void run(const std::stop_token& stop) {
    if (fault_.init_fails) return set(State::failed, "the emulation was told to fail");
    if (fault_.init_hangs || !connect_all(stop)) return;
    if (formed_) formed_();
    set(State::done);
    for (int64_t count = 1;; ++count) {
      std::pair<Queues, Queues> work;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [&] { return work_.has_value(); })) return;
        work = std::move(*work_);
        work_.reset();
      }
      if (count >= fault_.transfer_fails) return set(State::failed, "the emulation was told to fail");
      if (count >= fault_.transfer_hangs) return;
      const std::string why = carry(work.first, work.second, stop);
      if (stop.stop_requested()) return;
      set(why.empty() ? State::done : State::failed, why);
      if (!why.empty()) return;
    }
  }

  // Connects to the members before this one, and accepts those after it.
  bool connect_all(const std::stop_token& stop) {
    const Socket door = make_socket();
    const auto [mine, size] = address_of(id_, me_);
    if (::bind(door.get(), reinterpret_cast<const sockaddr*>(&mine), size) != 0 || ::listen(door.get(), 64) != 0) {
      set(State::failed, fmt::format("listening: {}", std::strerror(errno)));
      return false;
    }
    for (int m = 0; m < me_; ++m) {
      const auto [theirs, length] = address_of(id_, m);
      Socket peer = make_socket();
      while (::connect(peer.get(), reinterpret_cast<const sockaddr*>(&theirs), length) != 0) {
        if (stop.stop_requested()) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      (void)::send(peer.get(), &me_, sizeof me_, MSG_NOSIGNAL);
      peers_[static_cast<size_t>(m)] = std::move(peer);
    }
    for (size_t missing = peers_.size() - 1 - static_cast<size_t>(me_); missing > 0;) {
      pollfd at_door{door.get(), POLLIN, 0};
      if (stop.stop_requested()) return false;
      if (::poll(&at_door, 1, kLook) <= 0) continue;
      Socket peer(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
      int who = -1;
      if (::recv(peer.get(), &who, sizeof who, MSG_WAITALL) != sizeof who) continue;
      peers_.at(static_cast<size_t>(who)) = std::move(peer);
      --missing;
    }
    return true;
  }

  // Runs until all is carried. Returns what went wrong, or "".
  std::string carry(Queues& out, Queues& in, const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> waits;
      std::vector<size_t> who;
      for (size_t m = 0; m < peers_.size(); ++m) {
        const int events = (out[m].empty() ? 0 : POLLOUT) | (in[m].empty() ? 0 : POLLIN);
        if (events == 0) continue;
        waits.push_back({peers_[m].get(), static_cast<short>(events), 0});
        who.push_back(m);
      }
      if (waits.empty()) return "";
      (void)::poll(waits.data(), waits.size(), kLook);
      for (size_t i = 0; i < waits.size(); ++i) {
        const size_t m = who[i];
        const int fd = waits[i].fd;
        const bool sent = move(out[m], [&](Bytes b) { return ::send(fd, b.at, b.left, MSG_NOSIGNAL | MSG_DONTWAIT); });
        const bool came = move(in[m], [&](Bytes b) { return ::recv(fd, b.at, b.left, MSG_DONTWAIT); });
        if (!sent || !came) return fmt::format("remote process of member {} is gone", m);
      }
    }
    return "";
  }

  template <class F>
  static bool move(std::deque<Bytes>& queue, F step) {
    while (!queue.empty()) {
      const ssize_t moved = step(queue.front());
      if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
      if (moved <= 0) return false;
      queue.front().at += moved;
      queue.front().left -= static_cast<size_t>(moved);
      if (queue.front().left == 0) queue.pop_front();
    }
    return true;
  }

  NcclFault fault_;
  NcclId id_;
  int me_;
  std::function<void()> formed_;
  std::vector<Socket> peers_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  State state_ = State::pending;
  std::string why_;
  int64_t count_ = 0;  // number of transfers
  int looks_ = 0;      // calls of carried() for the last transfer
  std::optional<std::pair<Queues, Queues>> work_;
  std::mutex abort_;
  std::jthread thread_;
};

class EmulatedNccl final : public Nccl {
 public:
  explicit EmulatedNccl(const NcclFault& fault) : fault_(fault), place_(make_id().hex().substr(0, 16)) {}
  Device device() const override { return {DeviceKind::emulated}; }
  std::string version() const override { return "emulated NCCL"; }
  std::string place() const override { return "GPU " + place_; }
  bool shrinks() const override { return !fault_.no_shrink; }
  NcclId make_id() override {
    std::random_device random;
    NcclId id;
    for (unsigned char& byte : id.bytes) byte = static_cast<unsigned char>(random());
    return id;
  }
  std::unique_ptr<NcclCommunicator> begin(const NcclId& id, int members, int me) override {
    return std::make_unique<Communicator>(fault_, id, members, me);
  }

 private:
  NcclFault fault_;
  std::string place_;
};

}  // namespace

NcclFault parse_nccl_fault(const std::string& text) {
  const size_t sign = text.find('=');
  const std::string what = text.substr(0, sign);
  const int64_t number = sign == std::string::npos ? 0 : std::stoll(text.substr(sign + 1));
  NcclFault fault;
  if (what == "missing") fault.missing = true;
  else if (what == "init_fails") fault.init_fails = true;
  else if (what == "init_hangs") fault.init_hangs = true;
  else if (what == "no_shrink") fault.no_shrink = true;
  else if (what == "shrink_fails") fault.shrink_fails = true;
  else if (what == "shrink_hangs") fault.shrink_hangs = true;
  else if (what == "transfer_fails") fault.transfer_fails = number;
  else if (what == "transfer_hangs") fault.transfer_hangs = number;
  else if (what == "transfer_breaks") fault.transfer_breaks = number;
  else check(what.empty(), "[emulation] unknown fault '{}'", text);
  return fault;
}

std::shared_ptr<Nccl> nccl(const NcclFault& fault) {
  if (fault.missing) fail("[nccl] the emulation was told that there is no library");
  return std::make_shared<EmulatedNccl>(fault);
}

}  // namespace elinvar::emulation

namespace elinvar {

std::shared_ptr<Nccl> emulated_nccl() {
  const char* const fault = std::getenv("ELINVAR_EMULATED_NCCL");
  return emulation::nccl(emulation::parse_nccl_fault(fault == nullptr ? "" : fault));
}

}  // namespace elinvar
