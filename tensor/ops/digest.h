#pragma once
// Digests of the chunks of tensors, computed on their device, so that only digests travel from a GPU to the host.
// tensor/digest_tree.h defines chunks and what their digests are used for.
#include <span>

#include "tensor/digest.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace elinvar {

// Writes a Digest for each chunk of the `bytes` of x, which are contiguous.
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
