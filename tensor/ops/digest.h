#pragma once
// Digests of the chunks of tensors, where the tensors lie, so that of a GPU's nothing but digests travels to the host.
// tensor/digest_tree.h says what a chunk is, and what they are made into.
#include <span>

#include "tensor/digest.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace elinvar {

// The `bytes` of x, whose elements lie one after another, into a Digest for each chunk, one after another.
struct DigestArgs {
  In x;
  Out digests;
  int64_t bytes;
};
void digest_chunks(CpuStream&, std::span<const DigestArgs>);
template <class B>
void digest_chunks(GpuStream<B>&, std::span<const DigestArgs>);

inline constexpr int64_t kDigestChunkBytes = int64_t{1} << 20;
constexpr int64_t digest_chunks_of(int64_t bytes) { return (bytes + kDigestChunkBytes - 1) / kDigestChunkBytes; }

}  // namespace elinvar
