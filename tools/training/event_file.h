#pragma once
// A file of events as TensorBoard reads them: records, each with an Event (tensorflow/core/util/event.proto) of one
// step, framed as TFRecord frames them:
//
//   length (u64), masked CRC-32C of it (u32), so many bytes, masked CRC-32C of them (u32); all little-endian
//
// A run has one such file for each of its parts, in the folder "tensorboard" of its directory: a coordinator begins a
// new one, named after its term (or the next number that is free, where the records of terms were lost), so that
// names sort as the parts follow each other. Its first events say from which step on it counts; what earlier parts tell
// of later steps is then dropped by TensorBoard. A crash leaves at most a record that is cut off at the end of a file,
// which readers take for the end.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tensor/base/file.h"
#include "tools/training/summary.h"

namespace elinvar {

class EventFile {
 public:
  // What follows is about steps after `step`.
  EventFile(const std::filesystem::path& run_directory, int64_t term, int64_t step);
  // `summary`: the bytes of a Summary. It is in the file after the next write().
  void add(int64_t step, std::string_view summary);
  void write();

 private:
  File file_;
  std::string added_;
};

std::string tf_record(std::string_view bytes);
uint32_t crc32c(std::string_view bytes);  // Castagnoli's polynomial, as in RFC 3720

}  // namespace elinvar
