#pragma once
// A heap in one range of addresses. It takes pieces from the smallest free range that fits, the lowest of equal ones,
// and merges a freed piece with its free neighbours, so that memory freed by one step serves the next, whatever its
// sizes. It reserves addresses at once and requests memory as it grows, on huge pages if the system grants them. Not
// thread-safe.
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace elinvar {

// Mark memory as inaccessible or as in use for address sanitizers; without one they do nothing.
void poison(const void* begin, size_t bytes);
void unpoison(const void* begin, size_t bytes);

size_t machine_memory();   // bytes of physical memory
size_t resident_memory();  // bytes of it that this process uses

inline size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

class Heap {
 public:
  Heap();  // reserves addresses only
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Returns a piece of `bytes`, a multiple of kUnit, aligned to kUnit and poisoned; null if the system has no more.
  static constexpr size_t kUnit = 1024;
  void* allocate(size_t bytes);
  void free(void* piece, size_t bytes);  // poisons the piece

  // Bytes of the pages that pieces have occupied since they were last returned to the system.
  int64_t resident() const { return resident_; }
  // Returns whole free pages to the system.
  void release();

 private:
  void insert(char* begin, size_t bytes);
  void erase(std::map<char*, size_t>::iterator range);
  void touch(const char* begin, size_t bytes);

  void* reserved_ = nullptr;
  size_t reserved_bytes_ = 0;
  char *base_ = nullptr, *top_ = nullptr, *usable_ = nullptr, *limit_ = nullptr;  // [base_, top_) was handed out once
  std::map<char*, size_t> free_;                                                  // no two are adjacent
  std::set<std::pair<size_t, char*>> by_size_;                                    // the same ranges
  std::vector<uint8_t> touched_;                                                  // per page from base_ on
  int64_t resident_ = 0;
};

}  // namespace elinvar
