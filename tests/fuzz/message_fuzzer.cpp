// Data that a stranger may send: frames, each after its length (two bytes); messages of the protocol; bodies of some.
#include <algorithm>
#include <memory>

#include "comm/packet.h"
#include "elastic/ledger/digest_file.h"
#include "elastic/protocol/message.h"
#include "elastic/step/generation.h"
#include "tensor/base/check.h"
#include "tensor/base/json.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

using Json = nlohmann::json;

std::vector<Blob> frames_of(std::string_view bytes) {
  std::vector<Blob> frames;
  while (bytes.size() >= 2) {
    const size_t length =
        static_cast<unsigned char>(bytes[0]) | static_cast<size_t>(static_cast<unsigned char>(bytes[1])) << 8;
    bytes.remove_prefix(2);
    const auto owner = std::make_shared<const std::string>(bytes.substr(0, length));
    frames.push_back({owner, reinterpret_cast<const std::byte*>(owner->data()), owner->size()});
    bytes.remove_prefix(std::min(length, bytes.size()));
  }
  return frames;
}

const FuzzTarget kMessage("message", [](std::string_view bytes) {
  const Decoded decoded = decode(frames_of(bytes));
  must(decoded.packet.has_value() == decoded.error.empty(), "a message, or an error");
  if (!decoded.packet) return;
  const Decoded again = decode(encode(*decoded.packet));
  must(again.packet && again.packet->kind == decoded.packet->kind && again.packet->body == decoded.packet->body,
       "a message that is sent on arrives as it is");
});

const FuzzTarget kBody("body", [](std::string_view bytes) {
  const Json json = parse_json(bytes);
  const auto read = [&](const auto& reader) {
    try {
      reader();
    } catch (const Json::exception&) {
    } catch (const UsageError&) {
    } catch (const Failure&) {
    }
  };
  read([&] { (void)to_json(layout_from(json)); });
  (void)to_json(generation_from(json));
});

// A message of the protocol: its kind on the first line, the body on the second, and the rest as one blob.
const FuzzTarget kProtocol("protocol", [](std::string_view bytes) {
  const size_t kind_end = std::min(bytes.find('\n'), bytes.size());
  std::string_view rest = bytes.substr(std::min(kind_end + 1, bytes.size()));
  const size_t body_end = std::min(rest.find('\n'), rest.size());
  Packet packet{.kind = std::string(bytes.substr(0, kind_end)), .body = parse_json(rest.substr(0, body_end))};
  if (!packet.body.is_object()) return;
  if (body_end < rest.size()) packet.blobs.push_back(blob_of(std::string(rest.substr(body_end + 1))));
  Message message;
  try {
    message = message_of(packet);
    if (const auto* facts = message.as<messages::Facts>()) (void)decode_facts(facts->told);
  } catch (const UsageError&) {
    return;
  }
  const Packet again = packet_of(message, 0);
  must(packet_of(message_of(again), 0).body == again.body, "a message that is read is written as it was");
});

}  // namespace
}  // namespace elinvar::test
