#pragma once
// Numbers that whoever runs a test can set: how many random schedules it tries, the first seed, and the like.
#include <cstdint>
#include <cstdlib>

namespace elinvar::test {

// Returns the variable's value, or `otherwise` if it is not set.
inline int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

}  // namespace elinvar::test
