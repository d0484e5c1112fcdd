#pragma once
// Shuts down a connection whose socket something else owns, by a second descriptor of it.
namespace elinvar {

class SocketShutdown {
 public:
  SocketShutdown() = default;
  explicit SocketShutdown(int descriptor);  // duplicates it; empty if it is closed already
  ~SocketShutdown();
  SocketShutdown(SocketShutdown&& other) noexcept;
  SocketShutdown& operator=(SocketShutdown&& other) noexcept;

  explicit operator bool() const { return descriptor_ >= 0; }
  void shut_down() const;  // both ends see the connection end; unsent data are lost

 private:
  int descriptor_ = -1;
};

}  // namespace elinvar
