#pragma once
// Shared by tests of transports: bytes to send, bytes from strangers, and a peer in another process.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/endpoint.h"
#include "comm/transport.h"
#include "tools/cli/program_beside.h"

namespace elinvar::test {

inline Arrival next(Transport& transport, std::chrono::milliseconds within = std::chrono::seconds(10)) {
  return transport.wait(Transport::Clock::now() + within);
}

inline double seconds_since(Transport::Clock::time_point start) {
  return std::chrono::duration<double>(Transport::Clock::now() - start).count();
}

inline Blob bytes_of(size_t count, unsigned seed) {
  auto owner = std::make_shared<std::vector<std::byte>>(count);
  for (size_t i = 0; i < count; ++i) (*owner)[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 13);
  const std::byte* data = owner->data();
  return {std::move(owner), data, count};
}

inline bool equal(const Blob& a, const Blob& b) {
  return a.bytes == b.bytes && std::memcmp(a.data, b.data, a.bytes) == 0;
}

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline void send_raw(const std::string& endpoint, const std::string& bytes) {
  const int raw = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(parse_endpoint(endpoint).port);
  ASSERT_EQ(connect(raw, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  close(raw);
}

// A process that answers each message: `bench transport-answer`.
class Answerer {
 public:
  explicit Answerer(std::vector<std::string> words) {
    words.insert(words.begin(), {program_beside("bench").string(), "transport-answer"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    child_ = fork();
    if (child_ == 0) {
      dup2(ends[1], 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    char c;
    while (read(ends[0], &c, 1) == 1 && c != '\n') endpoint_ += c;
    close(ends[0]);
  }
  ~Answerer() { die(); }
  const std::string& endpoint() const { return endpoint_; }
  void stop() const { kill(child_, SIGSTOP); }
  void die() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  pid_t child_ = 0;
  std::string endpoint_;
};

}  // namespace elinvar::test
