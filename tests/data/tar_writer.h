#pragma once
// Writes small tar archives, intact or deliberately malformed.
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <string_view>

namespace elinvar::test {

class TarWriter {
 public:
  // Adds one header with its contents, padded to blocks. `prefix` is ustar's second name field.
  TarWriter& member(std::string_view name, std::string_view contents, char type = '0', std::string_view prefix = "") {
    std::string h(512, '\0');
    const auto put = [&](size_t at, std::string_view text) { std::memcpy(h.data() + at, text.data(), text.size()); };
    put(0, name.substr(0, 100));
    put(100, "0000644");
    put(124, fmt::format("{:011o}", contents.size()));
    put(148, "        ");
    h[156] = type;
    put(257, std::string_view("ustar\00000", 8));
    put(345, prefix.substr(0, 155));
    unsigned sum = 0;
    for (char c : h) sum += static_cast<unsigned char>(c);
    put(148, fmt::format("{:06o}", sum));
    h[154] = '\0';
    bytes_ += h;
    bytes_ += contents;
    bytes_.resize((bytes_.size() + 511) / 512 * 512);
    return *this;
  }
  TarWriter& gnu_long_name(std::string_view name, std::string_view contents) {
    member("././@LongLink", std::string(name) + '\0', 'L');
    return member(name.substr(0, 100), contents);
  }
  TarWriter& pax(std::string_view key, std::string_view value) {
    const std::string rest = fmt::format(" {}={}\n", key, value);
    size_t length = rest.size() + 1;
    while (fmt::format("{}{}", length, rest).size() != length) ++length;
    return member("pax", fmt::format("{}{}", length, rest), 'x');
  }
  std::string finish() const { return bytes_ + std::string(1024, '\0'); }
  const std::string& unfinished() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace elinvar::test
