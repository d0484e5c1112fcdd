#pragma once
// Tensors on the CPU whose elements lie in a file instead of memory: the system reads pages of it when they are used,
// and writes them back and drops them when it needs the memory.
//
//   Tensor moment = zeros_in_file(shape, DType::f32, folder);
//   read_ahead(next_rows);   // begins to read them from the disk
//   ... ops on rows ...
//   hand_back(rows);         // they no longer count as memory of this process
//
// Each tensor has a file of its own, which has no name and needs no descriptor: it goes with the last handle on the
// tensor, or with the process. Its room on the disk is taken at once, because a disk that is full later would end the
// process; so does a disk that fails to read.
#include <filesystem>

#include "tensor/tensor.h"

namespace elinvar {

// Throws Failure, with the system's reason, if the folder cannot be written to or its disk has no room.
Tensor zeros_in_file(const Shape& shape, DType dtype, const std::filesystem::path& folder);

// Both take contiguous views of tensors in files. The elements stay as they are; reading them later costs the system's
// copy of the page or, if that is gone, the disk. Pages that the view has in part are handed back as well.
void read_ahead(const Tensor& x);
void hand_back(const Tensor& x);

}  // namespace elinvar
