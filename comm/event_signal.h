#pragma once
// A flag that a poll can wait for. set() from any thread and from signal handlers; it stays set until cleared.
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
