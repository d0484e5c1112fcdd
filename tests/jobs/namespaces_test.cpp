// A job between two network namespaces: over a link with delay, and over one that is cut in the middle of a step.
// Skipped if namespaces or the link cannot be made (no root, no `ip`, no /dev/net/tun).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include "tensor/base/check.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A link with delay between two network namespaces; its ends are tun0 in each.
class Wire {
 public:
  Wire(const std::string& one, const std::string& other, Clock::duration delay)
      : delay_(delay), ends_{end_in(one), end_in(other)} {
    carrier_ = std::jthread([this](const std::stop_token& stop) { carry(stop); });
  }
  ~Wire() {
    carrier_ = {};
    for (const int end : ends_) ::close(end);
  }
  bool made() const { return ends_[0] >= 0 && ends_[1] >= 0; }
  void cut() { cut_ = true; }  // data in transit and later data are lost

 private:
  struct Packet {
    Clock::time_point due;
    int to;
    std::string bytes;
  };

  static int end_in(const std::string& name) {
    int end = -1;
    std::thread([&] {  // runs in that namespace, to which the descriptor stays bound
      const int space = ::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
      if (space < 0 || ::setns(space, CLONE_NEWNET) != 0) return;
      end = ::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
      ifreq request{};
      request.ifr_flags = IFF_TUN | IFF_NO_PI;
      std::strcpy(request.ifr_name, "tun0");
      if (end >= 0 && ::ioctl(end, TUNSETIFF, &request) != 0) {
        ::close(end);
        end = -1;
      }
      ::close(space);
    })
        .join();
    return end;
  }

  void carry(const std::stop_token& stop) {
    std::deque<Packet> packets;
    while (!stop.stop_requested()) {
      pollfd polled[] = {{ends_[0], POLLIN, 0}, {ends_[1], POLLIN, 0}};
      (void)::poll(polled, 2, 1);
      for (int from = 0; from < 2; ++from) {
        char bytes[65536];
        for (ssize_t n = 0; (n = ::read(ends_[from], bytes, sizeof bytes)) > 0;)
          if (!cut_) packets.push_back({Clock::now() + delay_, ends_[1 - from], {bytes, static_cast<size_t>(n)}});
      }
      for (; !packets.empty() && packets.front().due <= Clock::now(); packets.pop_front())
        if (!cut_) (void)!::write(packets.front().to, packets.front().bytes.data(), packets.front().bytes.size());
    }
  }

  Clock::duration delay_;
  int ends_[2];
  std::atomic<bool> cut_{false};
  std::jthread carrier_;
};

class Namespaces : public test::TinyJob {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root makes network namespaces";
    for (const std::string& name : {here_, there_})
      if (!done("ip netns add " + name)) GTEST_SKIP() << "'ip netns add' fails: no namespaces here";
    wire_.emplace(here_, there_, 50ms);
    if (!wire_->made()) GTEST_SKIP() << "/dev/net/tun makes no devices here";
    for (const auto& [name, address] : {std::pair(here_, "10.213.7.1/24"), std::pair(there_, "10.213.7.2/24")}) {
      ASSERT_TRUE(done("ip -n " + name + " addr add " + address + " dev tun0"));
      ASSERT_TRUE(done("ip -n " + name + " link set tun0 up"));
      ASSERT_TRUE(done("ip -n " + name + " link set lo up"));
    }
    TinyJob::SetUp();
    ASSERT_EQ(wait(spawn({"keygen", folder_ / "key"})).code, 0);
  }
  void TearDown() override {
    kill_children();
    wire_.reset();
    for (const std::string& name : {here_, there_}) (void)done("ip netns del " + name);
  }
  static bool done(const std::string& command) { return std::system((command + " > /dev/null 2>&1").c_str()) == 0; }
  static std::vector<std::string> in(const std::string& name) { return {"ip", "netns", "exec", name}; }

  pid_t run_here(const std::vector<std::string>& more) const {
    std::vector<std::string> options = {"--listen", "tcp://10.213.7.1:0", "--key", folder_ / "key"};
    options.insert(options.end(), more.begin(), more.end());
    return start("run", options, in(here_));
  }
  pid_t join_from(const std::string& name, const std::string& address) const {
    for (int i = 0; i < 2000 && !std::filesystem::exists(folder_ / "run" / "coordinator.json"); ++i)
      std::this_thread::sleep_for(5ms);
    return spawn(
        {"join", endpoint("run"), "--listen", "tcp://" + address + ":0", "--key", folder_ / "key", "--threads", "1"},
        name, in(name));
  }
  bool happens(const std::string& event, Clock::duration limit) const {
    const auto deadline = Clock::now() + limit;
    while (Clock::now() < deadline) {
      for (const nlohmann::json& e : events("run", "event"))
        if (e["event"] == event) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }

  const std::string here_ = fmt::format("elinvar-{}-here", ::getpid());
  const std::string there_ = fmt::format("elinvar-{}-there", ::getpid());
  std::optional<Wire> wire_;
};

TEST_F(Namespaces, FiftyMillisecondsOfDelayChangeNothing) {
  const pid_t job = run_here({"--workers", "1", "--min-workers", "2", "--steps", "20"});
  const pid_t other = join_from(there_, "10.213.7.2");
  const auto began = Clock::now();
  const test::Ended ended = wait(job, "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_GT(Clock::now() - began, 2s) << "a step takes a way there and a way back";
  EXPECT_EQ(wait(other, there_).code, 0);
  // The last line may differ: the longer run need not have its digest of the state.
  const std::vector<std::string> lines = test::lines_of(ledger("run")), whole = test::lines_of(undisturbed());
  ASSERT_EQ(lines.size(), 21u);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(lines[i], whole[i]);
}

// Two workers here and one there, and a minimum of three: the remaining ones hold until another has come.
TEST_F(Namespaces, ALinkThatIsCutCostsAWorkerAndNoStep) {
  const pid_t job = run_here({"--workers", "2", "--min-workers", "3"});
  const pid_t other = join_from(there_, "10.213.7.2");
  reach("run", 10);
  std::this_thread::sleep_for(20ms);
  wire_->cut();
  EXPECT_TRUE(happens("hold", 5s)) << "a worker that is cut off is out within 5 s";
  EXPECT_LT(recorded("run"), 20);
  const pid_t third = join_from(here_, "10.213.7.1");
  const test::Ended ended = wait(job, "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("run"), undisturbed());
  EXPECT_EQ(wait(third, here_).code, 0);
  kill(other, SIGKILL);
}

}  // namespace
}  // namespace elinvar
