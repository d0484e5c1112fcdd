#pragma once
// Writes messages of Protocol Buffers in wire format (protobuf.dev/programming-guides/encoding), field by field. A
// field is a number and one of four kinds: a varint, eight bytes, a length followed by that many bytes, or four bytes.
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace elinvar {

class ProtoMessage {
 public:
  void integer(int field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void real(int field, double value) {
    key(field, 1);
    fixed(value);
  }
  void real(int field, float value) {
    key(field, 5);
    fixed(value);
  }
  void text(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const ProtoMessage& value) { text(field, value.bytes_); }
  void reals(int field, std::span<const double> values) {  // packed
    key(field, 2);
    varint(values.size_bytes());
    for (const double value : values) fixed(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, unsigned kind) { varint(static_cast<uint64_t>(field) << 3 | kind); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  template <class T>
  void fixed(T value) {  // little-endian, the byte order of this machine
    static_assert(std::endian::native == std::endian::little);
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof value);
  }
  std::string bytes_;
};

}  // namespace elinvar
