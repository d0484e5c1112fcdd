#pragma once
// 128-bit digests (XXH3-128): equal digests mean equal bits. They detect accidents, not attacks.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace elinvar {

struct Digest {
  uint64_t high = 0, low = 0;
  bool operator==(const Digest&) const = default;
  std::string hex() const;                    // 32 hexadecimal digits
  static Digest parse(std::string_view hex);  // throws UsageError
};

// Returns the XXH3-128 of `count` bytes.
Digest digest_bytes(const void* bytes, size_t count);

// Digests bytes that arrive in pieces: the result is digest_bytes() of their concatenation. Numbers are added as
// little-endian bytes.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void add(const void* bytes, size_t count);
  void add(std::string_view text);  // length first, so that pieces cannot run together
  void add(const Digest& digest);   // 16 bytes, low half first
  void add_integer(int64_t value);  // 8 bytes
  Digest digest() const;

 private:
  void* state_;
};

}  // namespace elinvar
