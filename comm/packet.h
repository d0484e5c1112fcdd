#pragma once
// What workers and the coordinator say to each other: a kind, who says it and when, a small JSON body, and blobs of
// bytes that are neither copied nor looked at on their way. On the wire a message is a ZeroMQ multipart message:
//
//   frame 0   fixed header: "ELNV", version (u32), run (u64), sender (u64), generation (i64), step (i64), blobs (u32)
//   frame 1   {"kind": "...", ...}: JSON in UTF-8; all numbers of frame 0 are little-endian
//   frame 2.. the blobs
//
// decode() takes what any stranger could send and either returns a whole message or says what is wrong with it.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

// Immutable bytes, kept alive by `owner`: whoever sends or receives them shares, nobody copies. The owner of a blob
// that is sent is released by whichever thread drops it last, perhaps one of the transport's. What is received is
// aligned for any scalar (8 bytes).
struct Blob {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

Blob blob_of(std::string text);

// A process of a job, from its start to its end: random, never reused, so a process that comes back is another peer.
using PeerId = uint64_t;

struct Packet {
  std::string kind;
  uint64_t run = 0;  // random, chosen when the run was started: messages of other runs are dropped
  PeerId sender = 0;
  int64_t generation = 0, step = 0;
  nlohmann::json body = nlohmann::json::object();  // without a key "kind"; a NaN in it arrives as null
  std::vector<Blob> blobs = {};
};

// The most that is accepted, and so the most that is sent.
struct PacketLimits {
  size_t body_bytes = 1 << 20;  // of frame 1
  int body_depth = 32;          // arrays and objects within each other
  size_t kind_bytes = 64;
  size_t blobs = 4096;
  size_t blob_bytes = 64 << 20;  // each
};

// What a body is, and a text in a blob may be. UsageError if it is no JSON object, too long or nested too deeply.
nlohmann::json object_from(const Blob& text, const PacketLimits& limits = {});

// The frames of a message. UsageError if decode() with these limits would not take them.
std::vector<Blob> encode(Packet message, const PacketLimits& limits = {});

struct Decoded {
  std::optional<Packet> packet;
  std::string error;  // without a message: why, in one line that quotes no more than a few bytes of it
};
// Never throws for what the frames contain; their blobs become the message's.
Decoded decode(std::vector<Blob> frames, const PacketLimits& limits = {});

}  // namespace elinvar
