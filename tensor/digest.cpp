#include "tensor/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>
#include <charconv>
#include <new>

#include "tensor/base/check.h"

namespace elinvar {

static_assert(std::endian::native == std::endian::little, "digests and files are little-endian");

std::string Digest::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Digest Digest::parse(std::string_view hex) {
  Digest digest;
  const auto half = [&](size_t begin, uint64_t& value) {
    const char* end = hex.data() + begin + 16;
    const auto [stop, error] = std::from_chars(hex.data() + begin, end, value, 16);
    return error == std::errc{} && stop == end;
  };
  check(hex.size() == 32 && half(0, digest.high) && half(16, digest.low),
        "[digest] expected 32 hexadecimal digits, got '{}'", hex);
  return digest;
}

Digest digest_bytes(const void* bytes, size_t count) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, count);
  return {hash.high64, hash.low64};
}

Hasher::Hasher() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}

Hasher::~Hasher() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void Hasher::add(const void* bytes, size_t count) {
  if (count > 0) XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes, count);
}

void Hasher::add(std::string_view text) {
  add_integer(static_cast<int64_t>(text.size()));
  add(text.data(), text.size());
}

void Hasher::add(const Digest& digest) {
  add(&digest.low, sizeof digest.low);
  add(&digest.high, sizeof digest.high);
}

void Hasher::add_integer(int64_t value) { add(&value, sizeof value); }

Digest Hasher::digest() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  return {hash.high64, hash.low64};
}

}  // namespace elinvar
