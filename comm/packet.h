#pragma once
// Messages between workers and the coordinator. A message has a kind, a sender, a generation and step, a small JSON
// body, and blobs, bytes that are neither copied nor inspected. On the wire it is a ZeroMQ multipart message:
//
//   frame 0   fixed header: "ELNV", version (u32), run (u64), sender (u64), generation (i64), step (i64), blobs (u32)
//   frame 1   {"kind": "...", ...}: JSON in UTF-8; all numbers of frame 0 are little-endian
//   frame 2.. the blobs
//
// decode() accepts any bytes; it returns either a whole message or what is wrong with it.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/blob.h"
#include "comm/peer.h"

namespace elinvar {

struct Packet {
  std::string kind;
  uint64_t run = 0;  // random, chosen when the run starts; messages of other runs are dropped
  PeerId sender = 0;
  int64_t generation = 0, step = 0;
  nlohmann::json body = nlohmann::json::object();  // must not have a key "kind"; a NaN arrives as null
  std::vector<Blob> blobs = {};
};

// Limits of what is accepted, and so of what may be sent.
struct PacketLimits {
  size_t body_bytes = 1 << 20;  // frame 1
  int body_depth = 32;          // nested arrays and objects
  size_t kind_bytes = 64;
  size_t blobs = 4096;
  size_t blob_bytes = 64 << 20;  // each
};

// Parses a JSON object: a body, or a text in a blob. Throws UsageError if it is not one, too long or nested too deeply.
nlohmann::json object_from(const Blob& text, const PacketLimits& limits = {});

// Returns the frames of a message. Throws UsageError if decode() would not accept them with these limits.
std::vector<Blob> encode(Packet message, const PacketLimits& limits = {});

struct Decoded {
  std::optional<Packet> packet;
  std::string error;  // why there is no packet, in one line that quotes at most a few bytes of it
};
// Never throws because of what the frames contain. The packet shares their blobs.
Decoded decode(std::vector<Blob> frames, const PacketLimits& limits = {});

}  // namespace elinvar
