#pragma once
// Collects notices for the user that are no errors: an index that was rebuilt, an image that is skipped. The library
// adds them, and a tool prints them (Dataset::take_notices). Thread-safe.
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace elinvar {

class Notices {
 public:
  void add(std::string text) {
    const std::lock_guard lock(mutex_);
    texts_.push_back(std::move(text));
  }
  // Returns the notices added since the last call.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(texts_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

}  // namespace elinvar
