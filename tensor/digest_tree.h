#pragma once
// The digests of tensors with those of their parts, so that a difference is found by its digests alone: the digest of a
// tensor covers those of its chunks, and whatever covers many tensors (tensor/state.h, the ledger of a run) theirs.
//
//   chunk    XXH3-128 of kDigestChunkBytes of the elements, the last one of what is left: little-endian, in logical
//            (row-major) order, every NaN as the positive quiet one without payload (0x7fc00000 and its like)
//   tensor   XXH3-128 of the name of its dtype (length first), its number of dimensions, each extent, and its chunks
//
// So strides play no part, nor how many threads hash chunks.
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

// Digests tensors on the device that they are on. On the CPU, all threads of the calling thread's stream share the
// chunks of all tensors.
std::vector<TensorDigest> digest_tree(std::span<const Tensor> tensors);

// The first 8 hexadecimal digits of a digest: enough to tell which of many differ where it is known that some do.
inline constexpr size_t kShortDigest = 8;
std::string short_hex(const Digest& digest);

}  // namespace elinvar
