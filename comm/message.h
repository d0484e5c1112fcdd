#pragma once
// What workers and the coordinator say to each other: a kind, who says it and when, a small JSON body, and blobs of
// bytes that are neither copied nor looked at on their way. On the wire a message is a ZeroMQ multipart message:
//
//   frame 0   fixed header: "ELNV", version (u32), run (u64), sender (u64), generation (i64), step (i64), blobs (u32)
//   frame 1   {"kind": "...", ...}: at most kMostBodyBytes, little-endian numbers above, UTF-8 here
//   frame 2.. the blobs
//
// decode() takes what any stranger could send and either returns a whole message or says what is wrong with it.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

// Immutable bytes, kept alive by `owner`: whoever sends or receives them shares, nobody copies.
struct Blob {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// A process of a job, from its start to its end: random, never reused, so a process that comes back is another peer.
using PeerId = uint64_t;

struct Message {
  std::string kind;
  uint64_t run = 0;  // random, chosen when the run was started: messages of other runs are dropped
  PeerId sender = 0;
  int64_t generation = 0, step = 0;
  nlohmann::json body = nlohmann::json::object();
  std::vector<Blob> blobs = {};
};

}  // namespace elinvar
