#pragma once
// Digests of tensors and of their chunks, so that digests alone locate a difference. The digest of a tensor covers
// those of its chunks; digests of many tensors (tensor/state.h, the ledger of a run) cover those of the tensors.
//
//   chunk    XXH3-128 of kDigestChunkBytes of the elements (of fewer for the last chunk): little-endian, in logical
//            (row-major) order, every NaN as the positive quiet one without payload (0x7fc00000 and its like)
//   tensor   XXH3-128 of the name of its dtype (length first), its number of dimensions, each extent, and its chunks
//
// Digests depend neither on strides nor on how many threads hash chunks.
#include <span>
#include <string>
#include <vector>

#include "tensor/digest.h"
#include "tensor/ops/digest.h"  // kDigestChunkBytes
#include "tensor/tensor.h"

namespace elinvar {

struct TensorDigest {
  Digest digest;
  std::vector<Digest> chunks;
};

// Digests tensors on their own device. On the CPU, all threads of the calling thread's stream share the chunks of all
// tensors.
std::vector<TensorDigest> digest_tree(std::span<const Tensor> tensors);

// Returns the digest of a tensor of this type and shape from those of all its chunks, in order. They may come from
// digest_tree() of slices that begin at chunks and end at chunks or at the tensor's end.
Digest digest_of_chunks(DType dtype, const Shape& shape, std::span<const Digest> chunks);

// The first 8 hexadecimal digits of a digest: enough to tell which of many tensors differ once some are known to.
inline constexpr size_t kShortDigest = 8;
std::string short_hex(const Digest& digest);

}  // namespace elinvar
