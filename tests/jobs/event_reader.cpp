#include "tests/jobs/event_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "tensor/base/file.h"

namespace elinvar::test {
namespace {

template <class T>
T fixed(std::string_view bytes, size_t at) {
  if (at + sizeof(T) > bytes.size()) throw std::runtime_error("a number is cut off");
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

uint64_t varint(std::string_view bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = fixed<uint8_t>(bytes, at++);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  throw std::runtime_error("a varint without an end");
}

// Computed bit by bit, without a table.
uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82F63B78 & (0 - (crc & 1)));
  }
  return std::rotr(~crc, 15) + 0xA282EAD8;
}

}  // namespace

double ProtoFields::real(int field) const { return std::bit_cast<double>(number(field)); }
float ProtoFields::short_real(int field) const { return std::bit_cast<float>(static_cast<uint32_t>(number(field))); }

ProtoFields proto(std::string_view bytes) {
  ProtoFields fields;
  for (size_t at = 0; at < bytes.size();) {
    const uint64_t key = varint(bytes, at);
    const int field = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0:
        fields.numbers.emplace(field, varint(bytes, at));
        break;
      case 1:
        fields.numbers.emplace(field, fixed<uint64_t>(bytes, at));
        at += 8;
        break;
      case 2: {
        const uint64_t length = varint(bytes, at);
        if (length > bytes.size() - at) throw std::runtime_error("a text is cut off");
        fields.texts.emplace(field, bytes.substr(at, length));
        at += length;
        break;
      }
      case 5:
        fields.numbers.emplace(field, fixed<uint32_t>(bytes, at));
        at += 4;
        break;
      default:
        throw std::runtime_error("no such kind of field");
    }
  }
  return fields;
}

std::vector<double> packed_reals(std::string_view bytes) {
  std::vector<double> values;
  for (size_t at = 0; at < bytes.size(); at += 8) values.push_back(fixed<double>(bytes, at));
  return values;
}

std::vector<std::string> tf_records(std::string_view bytes) {
  std::vector<std::string> records;
  for (size_t at = 0; at + 12 <= bytes.size();) {
    const auto length = fixed<uint64_t>(bytes, at);
    if (fixed<uint32_t>(bytes, at + 8) != masked_crc32c(bytes.substr(at, 8)))
      throw std::runtime_error("the length of a record is damaged");
    if (length + 16 > bytes.size() - at) break;
    const std::string_view record = bytes.substr(at + 12, length);
    if (fixed<uint32_t>(bytes, at + 12 + length) != masked_crc32c(record))
      throw std::runtime_error("a record is damaged");
    records.emplace_back(record);
    at += length + 16;
  }
  return records;
}

std::map<std::string, std::vector<SummaryValue>> read_events(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::map<std::string, std::vector<SummaryValue>> by_tag;
  for (const std::filesystem::path& file : files) {
    if (file.filename().string().find("tfevents") == std::string::npos)
      throw std::runtime_error("TensorBoard would not look at " + file.string());
    const std::vector<std::string> records = tf_records(read_file(file));
    if (records.empty() || proto(records[0]).text(3) != "brain.Event:2")
      throw std::runtime_error("no version of events");
    for (const std::string& record : records) {
      const ProtoFields event = proto(record);
      const int64_t step = static_cast<int64_t>(event.number(2));
      if (event.texts.contains(7) && proto(event.text(7)).number(1) == 1)
        for (auto& [tag, values] : by_tag) std::erase_if(values, [&](const SummaryValue& v) { return v.step >= step; });
      const ProtoFields summary = proto(event.text(5));
      for (auto [at, end] = summary.texts.equal_range(1); at != end; ++at) {
        const ProtoFields value = proto(at->second);
        by_tag[value.text(1)].push_back({step, value});
      }
    }
  }
  return by_tag;
}

}  // namespace elinvar::test
