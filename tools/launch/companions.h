#pragma once
// Child processes that do the same at the same time, as the workers of a host do: what one of them measures, it
// measures while the others use caches, memory channels and processors. Their memory is gone afterwards.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace elinvar {

// A child process's view of its group.
class Companions {
 public:
  struct Shared;
  Companions(Shared& shared, int index, int count) : shared_(shared), index_(index), count_(count) {}

  int index() const { return index_; }
  int count() const { return count_; }
  // Returns once every process of the group has called it equally often. Throws Failure if one of them has ended.
  void meet();
  // meet(), and returns the text of each process by index. A text has at most kMostText characters.
  static constexpr size_t kMostText = 255;
  std::vector<std::string> exchange(const std::string& text);
  double greatest(double value);  // meet(), and returns the greatest value of all processes

 private:
  Shared& shared_;
  int index_, count_, met_ = 0;
};

// Runs `work` in `count` child processes; returns the answer of each, by index. Throws what one of them throws, as
// UsageError or Failure. Call it while this process has no other threads.
std::vector<nlohmann::ordered_json> in_children(int count,
                                                const std::function<nlohmann::ordered_json(Companions&)>& work);

}  // namespace elinvar
