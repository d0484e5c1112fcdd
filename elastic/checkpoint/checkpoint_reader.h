#pragma once
// Reads tensors and slices of tensors from a checkpoint whose whole state need not fit in memory. It does not matter
// how the checkpoint was cut into parts and slices.
//
//   const CheckpointReader reader = store.open(step);                     // the parts are verified
//   StateDict weights = reader.read({"model.", "step"});                  // whole tensors
//   StateSlice mine = reader.read_slice("optimizer.w.m", begin, end);
//
// All functions throw Failure if a file cannot be read or is damaged. Any number of threads may read.
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastic/checkpoint/manifest.h"
#include "elastic/checkpoint/part_contents.h"

namespace elinvar {

class CheckpointReader {
 public:
  // Opens the checkpoint in `directory` and checks its manifest, the sizes of its files, and that their headers list
  // each element of each tensor once. Does not read elements: call verify_parts(), or read_verified(), before elements
  // are used.
  CheckpointReader(const std::filesystem::path& directory, int64_t step);

  int64_t step() const { return step_; }
  const Digest& digest() const { return manifest_.state; }  // the state's digest, from the manifest
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  // Reads each file once, in pieces, and compares its digest with the manifest.
  void verify_parts() const;
  // Compares the state's digest with the manifest. Reads every element once more, in pieces.
  void verify_state() const;
  // Reads the whole state and compares the digests of the parts; the caller compares the state's.
  StateDict read_verified() const;

  // Returns the tensors whose names begin with one of the prefixes.
  StateDict read(std::span<const std::string_view> prefixes) const;
  StateDict read(std::initializer_list<std::string_view> prefixes) const {
    return read(std::span(prefixes.begin(), prefixes.size()));
  }
  // Returns elements [begin, end) of a tensor in one dimension. They may be any elements of a tensor of any type.
  Tensor read_elements(const std::string& tensor, int64_t begin, int64_t end) const;
  // Returns a slice of a float32 tensor, which must cut no chunk.
  StateSlice read_slice(const std::string& tensor, int64_t begin, int64_t end) const;

 private:
  const StoredTensor& stored(const std::string& tensor) const;
  void read_into(const StoredTensor& tensor, int64_t begin, int64_t end, void* to) const;

  int64_t step_;
  Manifest manifest_;
  std::vector<SafetensorsFile> parts_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace elinvar
