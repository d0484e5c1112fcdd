#pragma once
// A reader of TensorBoard's event files, written from the formats' descriptions alone.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace elinvar::test {

// A message of Protocol Buffers, by field: numbers as their bits, what has a length as its bytes.
struct ProtoFields {
  std::multimap<int, uint64_t> numbers;
  std::multimap<int, std::string> texts;
  uint64_t number(int field) const { return numbers.contains(field) ? numbers.find(field)->second : 0; }
  std::string text(int field) const { return texts.contains(field) ? texts.find(field)->second : ""; }
  double real(int field) const;       // of eight bytes
  float short_real(int field) const;  // of four
};
ProtoFields proto(std::string_view bytes);  // throws std::runtime_error for what is none

std::vector<double> packed_reals(std::string_view bytes);

// The records of a file, their checksums verified; throws std::runtime_error. A last one that is cut off is left out.
std::vector<std::string> tf_records(std::string_view bytes);

struct SummaryValue {
  int64_t step = 0;
  ProtoFields value;
};
// By tag, in the order of steps, what a run's files tell as TensorBoard takes them: where a file begins at a step, what
// those before it told of this and later steps counts no more.
std::map<std::string, std::vector<SummaryValue>> read_events(const std::filesystem::path& folder);

}  // namespace elinvar::test
