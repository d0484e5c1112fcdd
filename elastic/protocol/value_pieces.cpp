#include "elastic/protocol/value_pieces.h"

#include <algorithm>
#include <cstring>

namespace elinvar {

size_t count_of_pieces(size_t bytes) { return std::max<size_t>(1, (bytes + kValuePiece - 1) / kValuePiece); }

void append_pieces(std::vector<Blob>& pieces, const Blob& elements) {
  size_t at = 0;
  do {
    const size_t bytes = std::min(elements.bytes - at, kValuePiece);
    pieces.push_back({.owner = elements.owner, .data = elements.data + at, .bytes = bytes});
    at += bytes;
  } while (at < elements.bytes);
}

bool are_pieces(std::span<const Blob> pieces, size_t bytes) {
  if (pieces.size() != count_of_pieces(bytes)) return false;
  for (const Blob& piece : pieces) {
    if (piece.bytes != std::min(bytes, kValuePiece)) return false;
    bytes -= piece.bytes;
  }
  return true;
}

Tensor joined(std::span<const Blob> pieces, const Shape& shape, DType dtype) {
  if (pieces.size() == 1) return Tensor::over(pieces[0].owner, pieces[0].data, shape, dtype);
  Tensor all = Tensor::empty(shape, dtype);
  auto* to = static_cast<char*>(all.raw());
  for (const Blob& piece : pieces) {
    std::memcpy(to, piece.data, piece.bytes);
    to += piece.bytes;
  }
  return all;
}

}  // namespace elinvar
