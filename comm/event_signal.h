#pragma once
// A flag that poll() can wait for. Any thread and any signal handler may call set(); the flag stays set until cleared.
namespace elinvar {

class EventSignal {
 public:
  EventSignal();
  ~EventSignal();
  EventSignal(const EventSignal&) = delete;
  EventSignal& operator=(const EventSignal&) = delete;

  void set() noexcept;
  void clear() noexcept;
  int descriptor() const { return descriptor_; }  // readable while set

 private:
  int descriptor_;
};

}  // namespace elinvar
