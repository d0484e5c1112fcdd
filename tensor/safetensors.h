#pragma once
// The safetensors format (huggingface.co/docs/safetensors): eight bytes with the length of a JSON header, the header
//   {"__metadata__": {key: text, ..}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..}
// and the elements, little-endian and row-major, without gaps. float16, which is no element type here, is read as
// float32. Tensors are written in name order, the header padded with spaces to a multiple of eight bytes.
//
// Files are read as hostile input: every length, shape and offset is checked before memory is allocated, and an error
// is a Failure that names the file, the tensor and what was found.
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tensor/base/file.h"
#include "tensor/state.h"

namespace elinvar {

struct SafetensorsContents {
  StateDict tensors;
  std::map<std::string, std::string> metadata;
  Digest digest;      // XXH3-128 of the whole file
  int64_t bytes = 0;  // its size
};

struct SafetensorsWritten {
  Digest digest;
  int64_t bytes = 0;
};

// Creates the file, which must not exist, and returns once it is durable. Removes it after an error.
SafetensorsWritten write_safetensors(const std::filesystem::path& path, const StateDict& tensors,
                                     const std::map<std::string, std::string>& metadata = {});

// Passes on the bytes of such a file, in order, in pieces that may be kept: `owner` keeps a piece's bytes alive.
void stream_safetensors(
    const StateDict& tensors, const std::map<std::string, std::string>& metadata,
    const std::function<void(const std::shared_ptr<const void>& owner, const void* bytes, size_t count)>& sink);

// A file that is open to be read tensor by tensor. Any number of threads may read.
class SafetensorsFile {
 public:
  struct Entry {
    DType dtype = DType::f32;
    Shape shape = {};
    bool half = false;           // float16 in the file
    int64_t begin = 0, end = 0;  // its bytes, counted from the first tensor's
  };

  explicit SafetensorsFile(const std::filesystem::path& path);  // reads and checks the header

  const std::map<std::string, Entry>& tensors() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  int64_t bytes() const { return file_.size(); }

  // Reads elements [begin, end) of a tensor, in row-major order.
  void read(const std::string& name, int64_t begin, int64_t end, void* to) const;
  // Reads all elements, each tensor to the place that `to` returns for it. Returns the digest of the file.
  Digest read(const std::function<void*(const std::string& name)>& to) const;
  Digest digest() const;  // the digest of the file, which is read piece by piece

 private:
  File file_;
  std::string head_;  // the bytes before those of the first tensor
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

SafetensorsContents read_safetensors(const std::filesystem::path& path);

}  // namespace elinvar
