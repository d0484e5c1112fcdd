#pragma once
// A file of events that TensorBoard reads. Each record holds an Event (tensorflow/core/util/event.proto) of one step,
// framed like a TFRecord:
//
//   length (u64), masked CRC-32C of the length (u32), data, masked CRC-32C of the data (u32); all little-endian
//
// A run has one file for each of its parts, in the folder "tensorboard" of its directory. A coordinator begins a new
// file, named after its term (or after the next free number if the records of terms were lost), so that names sort in
// the order of the parts. The first events of a file give the step from which it counts; TensorBoard then drops the
// later steps of earlier files. A crash leaves at most a truncated record at the end of a file, which readers treat as
// the end.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tensor/base/file.h"
#include "tools/training/summary.h"

namespace elinvar {

class EventFile {
 public:
  // Events after `step` follow.
  EventFile(const std::filesystem::path& run_directory, int64_t term, int64_t step);
  // Adds the bytes of a Summary. They are in the file after the next write().
  void add(int64_t step, std::string_view summary);
  void write();

 private:
  File file_;
  std::string added_;
};

std::string tf_record(std::string_view bytes);
uint32_t crc32c(std::string_view bytes);  // Castagnoli's polynomial, as in RFC 3720

}  // namespace elinvar
