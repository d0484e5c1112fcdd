#pragma once
// What a user should hear of and no caller waits for: an index that was made anew, an image that is left out. Code of
// the library collects it; a tool prints it (Dataset::take_notices). Thread-safe.
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
  // Those added since the last call.
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(texts_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

}  // namespace elinvar
