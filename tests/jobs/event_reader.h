#pragma once
// Reads TensorBoard's event files, according to the formats' descriptions alone.
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace elinvar::test {

// The fields of a Protocol Buffers message: numbers as their bits, fields with a length as bytes.
struct ProtoFields {
  std::multimap<int, uint64_t> numbers;
  std::multimap<int, std::string> texts;
  uint64_t number(int field) const { return numbers.contains(field) ? numbers.find(field)->second : 0; }
  std::string text(int field) const { return texts.contains(field) ? texts.find(field)->second : ""; }
  double real(int field) const;       // eight bytes
  float short_real(int field) const;  // four bytes
};
ProtoFields proto(std::string_view bytes);  // throws std::runtime_error if the bytes are not a message

std::vector<double> packed_reals(std::string_view bytes);

// Returns the records of a file after verifying checksums; throws std::runtime_error. Omits a last record that is cut
// off.
std::vector<std::string> tf_records(std::string_view bytes);

struct SummaryValue {
  int64_t step = 0;
  ProtoFields value;
};
// Returns the values of a run's files by tag, in the order of steps, as TensorBoard shows them: values of earlier files
// from the step at which a later file begins do not count.
std::map<std::string, std::vector<SummaryValue>> read_events(const std::filesystem::path& folder);

}  // namespace elinvar::test
