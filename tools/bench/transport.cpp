#include "tools/bench/transport.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "comm/zmq_transport.h"
#include "tensor/base/check.h"
#include "tools/peak/timing.h"

namespace elinvar::bench {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr PeerId kAsks = 1, kAnswers = 2;
constexpr size_t kLarge = 4 << 20;

// A second process of this program; the destructor ends it.
class Answerer {
 public:
  Answerer(const std::string& listen, const std::string& key) {
    std::vector<std::string> words{fs::read_symlink("/proc/self/exe").string(), "transport-answer", listen};
    if (!key.empty()) words.push_back(key);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int ends[2];
    if (::pipe(ends) != 0) fail("cannot make a pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    const int error = ::posix_spawn(&child_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    const std::unique_ptr<std::FILE, decltype(&std::fclose)> out(::fdopen(ends[0], "r"), &std::fclose);
    char line[4096];
    if (error != 0 || !out || !std::fgets(line, sizeof line, out.get())) fail("cannot start {}", words[0]);
    endpoint_ = line;
    endpoint_.pop_back();
  }
  ~Answerer() {
    kill();
    ::waitpid(child_, nullptr, 0);
  }
  void kill() const { ::kill(child_, SIGKILL); }
  Answerer(const Answerer&) = delete;
  Answerer& operator=(const Answerer&) = delete;
  const std::string& endpoint() const { return endpoint_; }

 private:
  pid_t child_ = 0;
  std::string endpoint_;
};

void expect_answer(Transport& transport) {
  const Arrival arrival = transport.wait(Transport::Clock::now() + 60s);
  if (arrival.what != Arrival::What::message) fail("no answer: {}", arrival.reason);
}

void greet(Transport& transport, PeerId peer, const Answerer& answerer) {
  transport.connect(peer, answerer.endpoint());
  Packet hello{.kind = "hello", .sender = kAsks};
  hello.body["endpoint"] = transport.endpoint();
  transport.send(peer, std::move(hello));
  expect_answer(transport);
}

void run_case(const std::string& name, const std::string& listen, const std::string& answer, const std::string& key,
              int repeat, Report& report) {
  ZmqOptions options{.listen = listen};
  if (!key.empty()) options.key = JobKey::load(key);
  const auto transport = make_zmq_transport(options);
  std::vector<double> lost;
  for (int i = 0; i < repeat; ++i) {
    const PeerId peer = kAnswers + 1 + static_cast<PeerId>(i);
    const Answerer doomed(answer, key);
    greet(*transport, peer, doomed);
    doomed.kill();
    const auto start = Transport::Clock::now();
    if (transport->wait(start + 60s).peer != peer) fail("the loss of a killed process was not told");
    lost.push_back(std::chrono::duration<double>(Transport::Clock::now() - start).count());
  }
  const Answerer answerer(answer, key);
  greet(*transport, kAnswers, answerer);

  const auto ask = [&] {
    transport->send(kAnswers, {.kind = "ask", .sender = kAsks});
    expect_answer(*transport);
  };
  report.add(name + ", round trip", median_seconds(200, 2000, ask), 0.0, 0.0);

  const auto bytes = std::make_shared<std::vector<std::byte>>(kLarge, std::byte{1});
  const int count = key.empty() ? 128 : 16;
  const double seconds = median_seconds(1, repeat, [&] {
    for (int i = 0; i < count; ++i)
      transport->send(kAnswers, {.kind = "take", .sender = kAsks, .blobs = {{bytes, bytes->data(), bytes->size()}}});
    ask();
  });
  report.add(name + ", 4 MB messages", seconds / count, 0.0, static_cast<double>(kLarge) / 1e9);
  report.add(name + ", a killed process is told", median(lost), 0.0, 0.0);
}

}  // namespace

void run_transport(int repeat, Report& report) {
  std::string folder = (fs::temp_directory_path() / "elinvar-bench-XXXXXX").string();
  if (!::mkdtemp(folder.data())) fail("cannot make a temporary folder like '{}'", folder);
  const std::unique_ptr<const std::string, void (*)(const std::string*)> remove(&folder, [](const std::string* path) {
    std::error_code ignored;
    fs::remove_all(*path, ignored);
  });
  JobKey::make().save(folder);
  const std::string tcp = "tcp://127.0.0.1:0", ipc = "ipc://" + folder;
  run_case("tcp", tcp, tcp, "", repeat, report);
  run_case("ipc", ipc + "/asks", ipc + "/answers", "", repeat, report);
  run_case("tcp, encrypted", tcp, tcp, folder, repeat, report);
}

int answer_transport(const std::string& listen, const std::string& key) {
  ZmqOptions options{.listen = listen};
  if (!key.empty()) options.key = JobKey::load(key);
  const auto transport = make_zmq_transport(options);
  std::printf("%s\n", transport->endpoint().c_str());
  std::fflush(stdout);
  for (;;) {
    const Arrival arrival = transport->wait(Transport::Clock::now() + 60s);
    if (arrival.what == Arrival::What::lost) return 0;
    if (arrival.what != Arrival::What::message) fail("nobody asks: {}", arrival.reason);
    const Packet& message = arrival.packet;
    if (message.kind == "hello") transport->connect(message.sender, message.body.at("endpoint").get<std::string>());
    if (message.kind != "take") transport->send(message.sender, {.kind = "answer", .sender = kAnswers});
  }
}

}  // namespace elinvar::bench
