#pragma once
// The tensors and slices of a state in the safetensors files of a checkpoint's parts. Other programs read a slice as a
// tensor of one dimension with the name of slice_name() (tensor/state_slice.h); the whole shapes of its tensors are in
// the file's metadata (CHECKPOINT.md).
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tensor/safetensors.h"
#include "tensor/state_slice.h"

namespace elinvar {

// The contents of a part's file, as stream_safetensors() takes them. Without slices there is no metadata, and the file
// has format 1.
struct PartContents {
  StateDict tensors;
  std::map<std::string, std::string> metadata;
};
PartContents contents_of(const StateDict& tensors, std::span<const StateSlice> slices);

// A tensor of the state and where its elements are: one piece, or several slices in the order of their elements.
struct StoredTensor {
  struct Piece {
    size_t part = 0;
    std::string name;  // in the part's file
    int64_t begin = 0, end = 0;
  };
  DType dtype = DType::f32;
  Shape shape;
  std::vector<Piece> pieces;
};

// Returns the tensors of the state by name. Throws Failure, with the name of the tensor or of the slice, unless the
// parts hold each element of each tensor exactly once.
std::map<std::string, StoredTensor> stored_tensors(int format, std::span<const SafetensorsFile> parts);

}  // namespace elinvar
