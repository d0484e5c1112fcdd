#pragma once
// The bytes that a message carries beside its JSON.
#include <cstddef>
#include <memory>
#include <string>

namespace elinvar {

// Immutable bytes that `owner` keeps alive; senders and receivers share them without a copy. The thread that drops a
// sent blob last releases its owner, perhaps one of the transport's threads. Received blobs are aligned to 8 bytes.
struct Blob {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

Blob blob_of(std::string text);

}  // namespace elinvar
