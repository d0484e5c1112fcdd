// What a stranger may send: frames, each after its length (two bytes); and the bodies of messages.
#include <algorithm>
#include <memory>

#include "comm/message.h"
#include "elastic/ledger/digest_file.h"
#include "elastic/step/generation.h"
#include "elastic/step/step.h"
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
  must(decoded.message.has_value() == decoded.error.empty(), "a message, or an error");
  if (!decoded.message) return;
  const Decoded again = decode(encode(*decoded.message));
  must(again.message && again.message->kind == decoded.message->kind && again.message->body == decoded.message->body,
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
  read([&] { (void)to_json(leaf_facts_from(json)); });
  (void)to_json(generation_from(json));
});

}  // namespace
}  // namespace elinvar::test
