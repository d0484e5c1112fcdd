#include "tools/launch/companions.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

// In memory that all processes of a group share.
struct Companions::Shared {
  static constexpr int kMost = 1024;
  std::atomic<int> arrived{0};  // calls of meet()
  std::atomic<bool> over{false};
  std::array<std::array<char, kMostText + 1>, kMost> texts{};
};

namespace {

using OrderedJson = nlohmann::ordered_json;

using SharedMemory = std::unique_ptr<Companions::Shared, void (*)(Companions::Shared*)>;

SharedMemory shared_memory() {
  void* const place =
      ::mmap(nullptr, sizeof(Companions::Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) fail("no memory to share with child processes: {}", std::strerror(errno));
  return {new (place) Companions::Shared, [](Companions::Shared* s) { ::munmap(s, sizeof(Companions::Shared)); }};
}

struct Child {
  pid_t pid = 0;
  int answers = -1;  // -1: all was read
  std::string text;
};

// Ends this process, which is a child, after it has written what `work` returns, or what it throws.
[[noreturn]] void answer(int file, Companions companions, const std::function<OrderedJson(Companions&)>& work) {
  OrderedJson answer;
  try {
    answer = work(companions);
  } catch (const UsageError& error) {
    answer = {{"usage", error.what()}};
  } catch (const std::exception& error) {
    answer = {{"failure", error.what()}};
  }
  const std::string text = answer.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(file, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) break;
    written += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  ::_exit(0);
}

Child start(Companions companions, const std::function<OrderedJson(Companions&)>& work) {
  int ends[2];
  if (::pipe(ends) != 0) fail("no pipe to a child process: {}", std::strerror(errno));
  std::fflush(nullptr);
  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid < 0) {
    const int error = errno;
    ::close(ends[0]);
    ::close(ends[1]);
    fail("cannot start a child process: {}", std::strerror(error));
  }
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::close(ends[0]);
    answer(ends[1], companions, work);
  }
  ::close(ends[1]);
  return {.pid = pid, .answers = ends[0], .text = {}};
}

// Reads answers until all processes have ended. Those that are left learn that one of them has.
void read_answers(std::vector<Child>& children, Companions::Shared& shared) {
  while (true) {
    std::vector<pollfd> files;
    for (const Child& child : children) files.push_back({child.answers, POLLIN, 0});
    if (std::ranges::all_of(children, [](const Child& child) { return child.answers < 0; })) return;
    if (::poll(files.data(), files.size(), -1) < 0) {
      invariant(errno == EINTR, "pipes can be polled");
      continue;
    }
    for (size_t i = 0; i < children.size(); ++i) {
      if (files[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t count = ::read(files[i].fd, buffer, sizeof buffer);
      if (count < 0 && errno == EINTR) continue;
      if (count > 0) {
        children[i].text.append(buffer, static_cast<size_t>(count));
        continue;
      }
      ::close(std::exchange(children[i].answers, -1));
      shared.over = true;
    }
  }
}

}  // namespace

void Companions::meet() {
  const int all = ++met_ * count_;
  shared_.arrived.fetch_add(1);
  while (shared_.arrived.load() < all) {
    if (shared_.over) fail("another process that measures has ended");
    ::usleep(20);
  }
}

std::vector<std::string> Companions::exchange(const std::string& text) {
  invariant(text.size() <= kMostText, "the text is short");
  std::memcpy(shared_.texts[static_cast<size_t>(index_)].data(), text.c_str(), text.size() + 1);
  meet();
  std::vector<std::string> texts;
  for (int i = 0; i < count_; ++i) texts.emplace_back(shared_.texts[static_cast<size_t>(i)].data());
  meet();  // before anyone writes another one
  return texts;
}

double Companions::greatest(double value) {
  if (count_ == 1) return value;
  for (const std::string& text : exchange(fmt::format("{}", value))) value = std::max(value, std::stod(text));
  return value;
}

std::vector<OrderedJson> in_children(int count, const std::function<OrderedJson(Companions&)>& work) {
  invariant(count >= 1 && count <= Companions::Shared::kMost, "a group has some processes");
  const SharedMemory shared = shared_memory();
  std::vector<Child> children;
  const auto wait = [&] {
    for (Child& child : children) {
      int status = 0;
      while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
      }
      if (WIFSIGNALED(status) && child.text.empty())
        child.text =
            OrderedJson{{"failure", fmt::format("a process that measures was killed by signal {}", WTERMSIG(status))}}
                .dump();
    }
  };
  try {
    for (int i = 0; i < count; ++i) children.push_back(start({*shared, i, count}, work));
  } catch (const Failure&) {
    for (const Child& child : children) ::kill(child.pid, SIGKILL);
    for (Child& child : children) ::close(child.answers);
    wait();
    throw;
  }
  read_answers(children, *shared);
  wait();
  std::vector<OrderedJson> answers;
  for (const Child& child : children) {
    OrderedJson json = OrderedJson::parse(child.text, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) json = {{"failure", "a process that measures ended without an answer"}};
    answers.push_back(std::move(json));
  }
  // The first failure that is not the end of another process.
  const auto is_followup = [](const OrderedJson& json) {
    return json.contains("failure") && json["failure"] == "another process that measures has ended";
  };
  for (const bool followup : {false, true})
    for (const OrderedJson& json : answers) {
      if (is_followup(json) != followup) continue;
      if (json.contains("usage")) throw UsageError(json["usage"]);
      if (json.contains("failure")) throw Failure(json["failure"]);
    }
  return answers;
}

}  // namespace elinvar
