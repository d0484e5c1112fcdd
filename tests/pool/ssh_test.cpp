// Machines behind a real sshd on loopback, with keys made for the test. Skipped if there is no sshd (Debian:
// openssh-server).
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/jobs/small_job.h"
#include "tests/jobs/train_process.h"
#include "tools/pool/hosts/process.h"
#include "tools/pool/store/store.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using pool::ProgramOutput;
using pool::run_program;

constexpr const char* kServer = "/usr/sbin/sshd";

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

class PoolSsh : public testing::Test, protected test::TrainRuns {
 protected:
  void SetUp() override {
    if (!fs::exists(kServer)) GTEST_SKIP() << "no sshd here; Debian has it in openssh-server";
    const int port = free_port();
    for (const char* key : {"host", "user"}) {
      const ProgramOutput made = run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder_ / key}, 20);
      ASSERT_EQ(made.code, 0) << made.err;
    }
    fs::copy_file(folder_ / "user.pub", folder_ / "authorized");
    folder_.write("sshd.conf", fmt::format("Port {}\nListenAddress 127.0.0.1\nHostKey {}\nPidFile none\n"
                                           "AuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n",
                                           port, (folder_ / "host").string(), (folder_ / "authorized").string()));
    folder_.write("ssh.conf", fmt::format("Host far\n  HostName 127.0.0.1\n  Port {}\n  User {}\n  IdentityFile {}\n"
                                          "  IdentitiesOnly yes\n  StrictHostKeyChecking accept-new\n"
                                          "  UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n",
                                          port, ::getpwuid(::getuid())->pw_name, (folder_ / "user").string(),
                                          (folder_ / "known").string()));
    server_ = pool::start_process({kServer, "-D", "-e", "-f", folder_ / "sshd.conf"}, folder_ / "sshd.log");
    ProgramOutput told;
    for (int i = 0; i < 100 && pool::process_state(server_).running; ++i) {
      told = run_program({"ssh", "-F", folder_ / "ssh.conf", "-o", "BatchMode=yes", "far", "true"}, 10);
      if (told.code == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    FAIL() << "sshd does not let us in: " << told.err << pool::end_of_file(folder_ / "sshd.log", 500);
  }
  void TearDown() override {
    if (fs::exists(folder_ / "pool" / "pool.db"))
      for (const pool::ProcessRecord& p : pool::Store::open_existing(folder_ / "pool").processes.present())
        if (!p.handle.empty()) pool::kill_process(p.handle);
    if (!server_.empty()) pool::kill_process(server_);
  }
  static bool comes(const std::function<bool()>& what) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!what() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return what();
  }
  std::string story() {
    return wait(spawn_program("pool", {"history", "--dir", folder_ / "pool"}, "history"), "history").out;
  }

  std::string server_;
};

TEST_F(PoolSsh, WorkersBehindItTrainAndAreHungUpOn) {
  folder_.write("job.toml", test::text_of({.steps = 1000000,  // cancelled at the end of the test
                                           .batch_size = 6,
                                           .virtual_ranks = 3,
                                           .checkpoint_every = 100000,
                                           .samples = 24,
                                           .image_size = 4,
                                           .channels = 4,
                                           .run = "log_every = 100000\n"}));
  folder_.write("pool/pool.toml", fmt::format("[pool]\npage = -1\npolicy = \"equal\"\ngrace = 10\nadvertise = "
                                              "\"127.0.0.1\"\n[lab]\nsource = \"ssh\"\nhosts = [\"far\"]\nslots = 2\n"
                                              "ssh_config = \"{}\"\n",
                                              (folder_ / "ssh.conf").string()));
  const auto pool = [&](std::vector<std::string> words, const std::string& name) {
    words.insert(words.end(), {"--dir", folder_ / "pool"});
    return wait(spawn_program("pool", words, name), name);
  };
  const test::Ended submitted = pool({"submit", folder_ / "job.toml"}, "submit");
  ASSERT_EQ(submitted.code, 0) << submitted.err;
  const pid_t daemon = spawn_program("pool", {"serve", "--dir", folder_ / "pool", "--until-done"}, "daemon");
  const std::string run = "pool/jobs/1/run", there = (folder_ / run).string();
  reach(run, 100);
  // A connection ends: the remote worker must not go on by itself.
  std::string cut;
  EXPECT_TRUE(comes([&] {
    for (const pool::ProcessRecord& p : pool::Store::open_existing(folder_ / "pool").processes.present())
      if (cut.empty() && !p.coordinator && p.registered) cut = p.name(), pool::kill_process(p.handle);
    return !cut.empty();
  })) << story();
  EXPECT_TRUE(comes([&] { return pool::find_process({"--run-dir", there, "--name", cut}).empty(); })) << story();
  reach(run, static_cast<int>(recorded(run)) + 100);
  EXPECT_EQ(pool({"cancel", "1"}, "cancel").code, 0);
  const test::Ended ended = wait(daemon, "daemon");
  EXPECT_EQ(ended.code, 0) << ended.err;
  const pool::JobRecord job = *pool::Store::open_existing(folder_ / "pool").jobs.find(1);
  EXPECT_EQ(job.failures, 0) << story();
  // Its result so far is that of a run on this host alone.
  const test::Ended whole = wait(spawn({"run", folder_ / "job.toml", "--run-dir", folder_ / "whole", "--threads", "1",
                                        "--until", std::to_string(job.step)},
                                       "whole"),
                                 "whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::string mine = ledger(run), theirs = ledger("whole");
  EXPECT_TRUE(theirs.starts_with(mine)) << story();
  EXPECT_GT(recorded(run), 200);
}

}  // namespace
}  // namespace elinvar
