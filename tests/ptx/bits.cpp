// Logic, shifts, fields of bits, choices, and moves within a register.
#include <algorithm>
#include <cstdint>

#include "tests/ptx/operation.h"

namespace elinvar::ptx {
namespace {

template <class T>
constexpr uint32_t kBits = 8 * sizeof(T);

// Shifts by more than the width are as if by the width.
template <class T>
T shifted_right(T a, uint32_t n) {
  const uint32_t most = kBits<T> - 1;
  const T shifted = static_cast<T>(a >> std::min(n, most));
  if constexpr (std::is_signed_v<T>) return shifted;
  else return n > most ? T{0} : shifted;
}
template <class T>
T shifted_left(T a, uint32_t n) {
  const uint32_t most = kBits<T> - 1;
  return n > most ? T{0} : static_cast<T>(a << std::min(n, most));
}

// The `count` lowest bits.
template <class T>
T low_bits(uint32_t count) {
  return count >= kBits<T> ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
}

// PTX uses the low 8 bits of a field's position and length.
template <class T>
T with_field(T field, T base, uint32_t position, uint32_t length) {
  position &= 255, length &= 255;
  const T mask = shifted_left(low_bits<T>(length), position);
  return static_cast<T>((base & ~mask) | (shifted_left(field, position) & mask));
}
// A signed field is extended by its highest bit, or by that of `a` if it reaches beyond the register.
template <class T>
T field_of(T a, uint32_t position, uint32_t length) {
  using U = std::make_unsigned_t<T>;
  position &= 255, length &= 255;
  const U mask = low_bits<U>(length);
  const U field = static_cast<U>(shifted_right(static_cast<U>(a), position) & mask);
  if constexpr (std::is_signed_v<T>) {
    if (length == 0) return 0;
    const uint32_t sign = std::min(position + length - 1, kBits<T> - 1);
    return static_cast<T>(a >> sign & 1
                              ? field | static_cast<U>(~mask) |
                                    shifted_left(static_cast<U>(~U{0}), kBits<T> - std::min(position, kBits<T>))
                              : field);
  } else {
    return field;
  }
}

// Chooses four of the eight bytes of b and a: each digit of `how` names one, or the sign of one.
uint32_t permuted(uint32_t a, uint32_t b, uint32_t how) {
  const uint64_t both = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (uint32_t k = 0; k < 4; ++k) {
    const uint32_t digit = how >> (4 * k) & 15;
    uint32_t byte = static_cast<uint32_t>(both >> (8 * (digit & 7))) & 255;
    if (digit & 8) byte = byte & 128 ? 255 : 0;
    out |= byte << (8 * k);
  }
  return out;
}

template <class T>
void add_logic(Operations& all, const std::string& type) {
  all["and." + type] = operation<T, T, T>([](T a, T b) { return a & b; });
  all["or." + type] = operation<T, T, T>([](T a, T b) { return a | b; });
  all["xor." + type] = operation<T, T, T>([](T a, T b) { return a ^ b; });
  all["not." + type] = operation<T, T>([](T a) { return ~a; });
  all["shl." + type] = operation<T, T, uint32_t>([](T a, uint32_t n) { return shifted_left(a, n); });
}

template <class T>
void add_right_shift(Operations& all, const std::string& type) {
  all["shr." + type] = operation<T, T, uint32_t>([](T a, uint32_t n) { return shifted_right(a, n); });
}

template <class T>
void add_choice(Operations& all, const std::string& type) {
  all["selp." + type] = operation<T, T, T, Predicate>([](T a, T b, bool first) { return first ? a : b; });
}

template <class T>
void add_field(Operations& all, const std::string& type) {
  all["bfe." + type] = operation<T, T, uint32_t, uint32_t>(
      [](T a, uint32_t position, uint32_t length) { return field_of(a, position, length); });
}

template <class T>
void add_field_insertion(Operations& all, const std::string& type) {
  all["bfi." + type] = operation<T, T, T, uint32_t, uint32_t>(
      [](T a, T b, uint32_t position, uint32_t length) { return with_field(a, b, position, length); });
}

void add_predicate_logic(Operations& all) {
  all["and.pred"] = operation<Predicate, Predicate, Predicate>([](bool a, bool b) { return a && b; });
  all["or.pred"] = operation<Predicate, Predicate, Predicate>([](bool a, bool b) { return a || b; });
  all["xor.pred"] = operation<Predicate, Predicate, Predicate>([](bool a, bool b) { return a != b; });
  all["not.pred"] = operation<Predicate, Predicate>([](bool a) { return !a; });
  all["mov.pred"] = operation<Predicate, Predicate>([](bool a) { return a; });
}

}  // namespace

void add_bit_operations(Operations& all) {
  const auto add = [&all]<class U>(U, const std::string& bits) {
    add_logic<U>(all, "b" + bits);
    add_right_shift<U>(all, "b" + bits);
    add_right_shift<U>(all, "u" + bits);
    add_right_shift<std::make_signed_t<U>>(all, "s" + bits);
    for (const char* kind : {"b", "u", "s"}) {
      add_choice<U>(all, kind + bits);
      all["mov." + (kind + bits)] = operation<U, U>([](U a) { return a; });
    }
    if constexpr (sizeof(U) > 2) {
      add_field<U>(all, "u" + bits);
      add_field<std::make_signed_t<U>>(all, "s" + bits);
      add_field_insertion<U>(all, "b" + bits);
      add_choice<U>(all, "f" + bits);
      all["mov.f" + bits] = operation<U, U>([](U a) { return a; });
    }
  };
  add(uint16_t{}, "16");
  add(uint32_t{}, "32");
  add(uint64_t{}, "64");
  all["prmt.b32"] = operation<uint32_t, uint32_t, uint32_t, uint32_t>(
      [](uint32_t a, uint32_t b, uint32_t how) { return permuted(a, b, how); });
  // Addresses in global and local memory are the same in the generic space; those in shared memory are not.
  for (const char* opcode : {"cvta.to.global.u64", "cvta.to.local.u64", "cvta.global.u64", "cvta.local.u64"})
    all[opcode] = operation<uint64_t, uint64_t>([](uint64_t a) { return a; });
  add_predicate_logic(all);
}

}  // namespace elinvar::ptx
