#pragma once
// A heap in one range of addresses: pieces are taken from the smallest free range that fits, of equal ones from the
// lowest, and a returned piece joins its free neighbours, so that what a step returns serves the next one whatever its
// sizes. Addresses are reserved at once, memory is asked for as the heap grows, on huge pages where the system grants
// them. Not thread-safe.
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace elinvar {

// Memory that nothing may touch, and memory that is in use, for address sanitizers; without one they do nothing.
void poison(const void* begin, size_t bytes);
void unpoison(const void* begin, size_t bytes);

size_t machine_memory();  // bytes of physical memory

class Heap {
 public:
  Heap();  // reserves addresses only
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // A piece of `bytes`, a multiple of kUnit, aligned to it and poisoned; null if the system has no more.
  static constexpr size_t kUnit = 1024;
  void* allocate(size_t bytes);
  void free(void* piece, size_t bytes);  // poisoned again

  // Bytes of the pages that pieces have lain on since they were last given back to the system.
  int64_t resident() const { return resident_; }
  // Gives the pages that lie in free ranges as a whole back to the system.
  void release();

 private:
  void insert(char* begin, size_t bytes);
  void erase(std::map<char*, size_t>::iterator range);
  void touch(const char* begin, size_t bytes);

  void* reserved_ = nullptr;
  size_t reserved_bytes_ = 0;
  char *base_ = nullptr, *top_ = nullptr, *usable_ = nullptr, *limit_ = nullptr;  // [base_, top_) was ever handed out
  std::map<char*, size_t> free_;                                                  // no two of them touch
  std::set<std::pair<size_t, char*>> by_size_;                                    // the same ranges
  std::vector<uint8_t> touched_;                                                  // of each page from base_ on
  int64_t resident_ = 0;
};

}  // namespace elinvar
