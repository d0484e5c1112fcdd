#pragma once
// The elements of a tensor in a message: in pieces, because the blobs of a message are of limited size (comm/packet.h).
#include <span>
#include <vector>

#include "comm/buckets.h"

namespace elinvar {

inline constexpr size_t kValuePiece = size_t{64} << 20;  // bytes; the last piece of a value may be shorter

size_t count_of_pieces(size_t bytes);  // at least one
void append_pieces(std::vector<Blob>& pieces, const Blob& elements);
// Whether these are the pieces of a value of so many bytes.
bool are_pieces(std::span<const Blob> pieces, size_t bytes);
// Returns a tensor over one piece, or over a copy of several, which must be those of the tensor.
Tensor joined(std::span<const Blob> pieces, const Shape& shape, DType dtype);

}  // namespace elinvar
